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
                let _type = self.u32();
                let n = self.u64() * u64::from(n_cells);
                rows.push(self.bytes(n as usize).into());
            }
        }
        cache
    }
}

/// The KV caches in a sequence's state; `n` of them, a context with sliding windows having two: the
/// full one first.
pub fn caches(state: &[u8], under_plan: bool, n: usize) -> Vec<Cache> {
    let mut reader = Reader(state);
    let _magic = reader.u32();
    let _seq_id = reader.u32();
    if under_plan {
        let len = reader.u32();
        let tag = reader.bytes(len as usize);
        assert!(tag.starts_with(b"repeat-layers="), "{tag:?}");
    }
    let caches = (0..n).map(|_| reader.cache()).collect();
    assert!(reader.0.is_empty(), "{} bytes left", reader.0.len());
    caches
}
