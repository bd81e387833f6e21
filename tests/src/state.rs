//! Reader of the bytes of a sequence's state, as `llama_kv_cache::state_write` makes them.

/// K and V rows of one KV cache: of each of its layers, the cells one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cache {
    pub pos: Vec<i32>,
    pub k: Vec<Vec<u8>>,
    pub v: Vec<Vec<u8>>,
}

impl Cache {
    /// K row of a cell, in the layer at this place of the cache.
    pub fn k_row(&self, layer: usize, cell: usize) -> &[u8] {
        row(&self.k[layer], cell, self.pos.len())
    }

    /// V row of a cell.
    pub fn v_row(&self, layer: usize, cell: usize) -> &[u8] {
        row(&self.v[layer], cell, self.pos.len())
    }
}

fn row(bytes: &[u8], cell: usize, n_cells: usize) -> &[u8] {
    let n = bytes.len() / n_cells;
    &bytes[cell * n..(cell + 1) * n]
}

/// State of one recurrent layer of one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recurrent {
    /// Last inputs of the convolution.
    pub r: Vec<u8>,
    pub s: Vec<u8>,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        head
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes(4).try_into().expect("4 bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes(8).try_into().expect("8 bytes"))
    }

    fn header(&mut self, under_plan: bool) {
        let _magic = self.u32();
        let _seq_id = self.u32();
        if under_plan {
            let len = self.u32();
            let tag = self.bytes(len as usize);
            assert!(tag.starts_with(b"repeat-layers="), "{tag:?}");
        }
    }

    fn cache(&mut self) -> Cache {
        let mut cache = Cache::default();
        assert_eq!(self.u32(), 1, "one stream");
        let n_cells = self.u32();
        for _ in 0..n_cells {
            cache.pos.push(self.u32().cast_signed());
            let n_seq = self.u32();
            self.bytes(4 * n_seq as usize);
        }
        assert_eq!(self.u32(), 0, "V is transposed; use flash attention");
        let n_layer = self.u32();
        for rows in [&mut cache.k, &mut cache.v] {
            for _ in 0..n_layer {
                rows.push(self.rows(n_cells));
            }
        }
        cache
    }

    /// The cells of one layer, and before them their type and size.
    fn rows(&mut self, n_cells: u32) -> Vec<u8> {
        let _type = self.u32();
        let n = self.u64() * u64::from(n_cells);
        self.bytes(n as usize).into()
    }

    fn recurrent(&mut self, n: usize) -> Vec<Recurrent> {
        assert_eq!(self.u32(), 1, "one cell");
        let (_pos, n_seq) = (self.u32(), self.u32());
        assert_eq!((n_seq, self.u32()), (0, 0), "sequences, transposed");
        let _n_layer = self.u32();
        let r: Vec<_> = (0..n).map(|_| self.rows(1)).collect();
        r.into_iter()
            .map(|r| Recurrent { r, s: self.rows(1) })
            .collect()
    }
}

/// The recurrent states in what [`crate::kept::PARTIAL_ONLY`] keeps of a sequence, those of `n` passes
/// in their order.
pub fn recurrent(state: &[u8], under_plan: bool, n: usize) -> Vec<Recurrent> {
    let mut reader = Reader(state);
    reader.header(under_plan);
    let states = reader.recurrent(n);
    assert!(reader.0.is_empty(), "{} bytes left", reader.0.len());
    states
}

/// The KV caches in a sequence's state; `n` of them, a context with sliding windows having two: the
/// full one first.
pub fn caches(state: &[u8], under_plan: bool, n: usize) -> Vec<Cache> {
    let mut reader = Reader(state);
    reader.header(under_plan);
    let caches = (0..n).map(|_| reader.cache()).collect();
    assert!(reader.0.is_empty(), "{} bytes left", reader.0.len());
    caches
}

/// A whole state without the architecture's name, behind which a plan has its tag.
pub fn payload(state: &[u8], under_plan: bool) -> &[u8] {
    let mut reader = Reader(state);
    let len = reader.u32();
    let name = reader.bytes(len as usize);
    let tagged = name.windows(15).any(|w| w == b" repeat-layers=");
    assert_eq!(tagged, under_plan, "{name:?}");
    reader.0
}
