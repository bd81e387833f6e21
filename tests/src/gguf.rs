//! GGUF files through llama.cpp's gguf functions.

use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::Path;
use std::ptr;
use std::slice;

use llama_sys as sys;

fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL in names and keys")
}

fn c_path(path: &Path) -> CString {
    c(path.to_str().expect("a path in UTF-8"))
}

/// Bytes of an element of an array of this type.
fn element_size(kind: sys::gguf_type) -> usize {
    match kind {
        sys::GGUF_TYPE_UINT8 | sys::GGUF_TYPE_INT8 | sys::GGUF_TYPE_BOOL => 1,
        sys::GGUF_TYPE_UINT16 | sys::GGUF_TYPE_INT16 => 2,
        sys::GGUF_TYPE_UINT32 | sys::GGUF_TYPE_INT32 | sys::GGUF_TYPE_FLOAT32 => 4,
        sys::GGUF_TYPE_UINT64 | sys::GGUF_TYPE_INT64 | sys::GGUF_TYPE_FLOAT64 => 8,
        other => panic!("arrays of type {other} have no fixed element size"),
    }
}

/// Metadata and tensors to write. `'a` is the tensors' data.
pub struct Writer<'a> {
    ptr: *mut sys::gguf_context,
    tensors: *mut sys::ggml_context,
    data: std::marker::PhantomData<&'a [u8]>,
}

impl Default for Writer<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Writer<'a> {
    pub fn new() -> Self {
        // SAFETY: plain constructors; a context without data holds names and shapes only.
        unsafe {
            Self {
                ptr: sys::gguf_init_empty(),
                tensors: sys::ggml_init(sys::ggml_init_params {
                    mem_size: 1 << 24,
                    mem_buffer: ptr::null_mut(),
                    no_alloc: true,
                }),
                data: std::marker::PhantomData,
            }
        }
    }

    /// The metadata, owned by this writer.
    pub fn as_ptr(&mut self) -> *mut sys::gguf_context {
        self.ptr
    }

    /// Takes over every key of a file.
    pub fn set_all(&mut self, file: &File) {
        // SAFETY: both are alive.
        unsafe { sys::gguf_set_kv(self.ptr, file.ptr) }
    }

    pub fn set_u32(&mut self, key: &str, value: u32) {
        // SAFETY: alive, and a NUL-terminated key that is copied.
        unsafe { sys::gguf_set_val_u32(self.ptr, c(key).as_ptr(), value) }
    }

    pub fn set_f32(&mut self, key: &str, value: f32) {
        // SAFETY: as above.
        unsafe { sys::gguf_set_val_f32(self.ptr, c(key).as_ptr(), value) }
    }

    pub fn set_bool(&mut self, key: &str, value: bool) {
        // SAFETY: as above.
        unsafe { sys::gguf_set_val_bool(self.ptr, c(key).as_ptr(), value) }
    }

    pub fn set_str(&mut self, key: &str, value: &str) {
        // SAFETY: as above; the value is copied too.
        unsafe { sys::gguf_set_val_str(self.ptr, c(key).as_ptr(), c(value).as_ptr()) }
    }

    /// An array of numbers or booleans, given as its bytes.
    pub fn set_array(&mut self, key: &str, kind: sys::gguf_type, bytes: &[u8]) {
        let n = bytes.len() / element_size(kind);
        // SAFETY: as above; `bytes` holds `n` elements, which are copied.
        unsafe {
            sys::gguf_set_arr_data(self.ptr, c(key).as_ptr(), kind, bytes.as_ptr().cast(), n);
        }
    }

    pub fn set_u32s(&mut self, key: &str, values: &[u32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        self.set_array(key, sys::GGUF_TYPE_UINT32, &bytes);
    }

    pub fn set_f32s(&mut self, key: &str, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        self.set_array(key, sys::GGUF_TYPE_FLOAT32, &bytes);
    }

    pub fn set_bools(&mut self, key: &str, values: &[bool]) {
        let bytes: Vec<u8> = values.iter().map(|&v| v.into()).collect();
        self.set_array(key, sys::GGUF_TYPE_BOOL, &bytes);
    }

    pub fn set_strs(&mut self, key: &str, values: &[String]) {
        let values: Vec<CString> = values.iter().map(|v| c(v)).collect();
        let mut pointers: Vec<*const c_char> = values.iter().map(|v| v.as_ptr()).collect();
        // SAFETY: as many NUL-terminated texts as said, which are copied.
        unsafe {
            sys::gguf_set_arr_str(
                self.ptr,
                c(key).as_ptr(),
                pointers.as_mut_ptr(),
                pointers.len(),
            );
        }
    }

    /// Adds a tensor. `data` has the bytes of its shape and type.
    pub fn add(&mut self, name: &str, kind: sys::ggml_type, ne: [i64; 4], data: &'a [u8]) {
        // SAFETY: the context is alive and has room for names and shapes; the data outlives `self`,
        // and its length is checked.
        unsafe {
            // trailing ones are no dimensions, or a file read and written again would differ
            let n_dims = ne.iter().rposition(|&n| n != 1).map_or(1, |i| i + 1);
            let tensor = sys::ggml_new_tensor(self.tensors, kind, n_dims as i32, ne.as_ptr());
            assert_eq!(sys::ggml_nbytes(tensor), data.len(), "{name}");
            sys::ggml_set_name(tensor, c(name).as_ptr());
            sys::gguf_add_tensor(self.ptr, tensor);
            sys::gguf_set_tensor_data(self.ptr, c(name).as_ptr(), data.as_ptr().cast());
        }
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        // SAFETY: alive; every tensor has its data.
        let ok = unsafe { sys::gguf_write_to_file(self.ptr, c_path(path).as_ptr(), false) };
        assert!(ok, "cannot write {}", path.display());
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // SAFETY: the only owner of both.
        unsafe {
            sys::gguf_free(self.ptr);
            sys::ggml_free(self.tensors);
        }
    }
}

/// A file, read whole.
pub struct File {
    ptr: *mut sys::gguf_context,
    bytes: Vec<u8>,
}

/// A tensor of a file.
pub struct Tensor<'a> {
    pub name: &'a str,
    pub kind: sys::ggml_type,
    pub ne: [i64; 4],
    pub data: &'a [u8],
}

impl File {
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let params = sys::gguf_init_params {
            no_alloc: true,
            ctx: ptr::null_mut(),
        };
        // SAFETY: a NUL-terminated path.
        let ptr = unsafe { sys::gguf_init_from_file(c_path(path).as_ptr(), params) };
        assert!(!ptr.is_null(), "{} is not GGUF", path.display());
        Self { ptr, bytes }
    }

    fn id(&self, key: &str) -> Option<i64> {
        // SAFETY: alive, and a NUL-terminated key.
        let id = unsafe { sys::gguf_find_key(self.ptr, c(key).as_ptr()) };
        (id >= 0).then_some(id)
    }

    fn kind(&self, id: i64) -> sys::gguf_type {
        // SAFETY: alive, and an id of it.
        unsafe { sys::gguf_get_kv_type(self.ptr, id) }
    }

    /// A value of type u32; `None` for an absent key or another type.
    pub fn u32(&self, key: &str) -> Option<u32> {
        let id = self.id(key)?;
        // SAFETY: the type is checked.
        (self.kind(id) == sys::GGUF_TYPE_UINT32)
            .then(|| unsafe { sys::gguf_get_val_u32(self.ptr, id) })
    }

    /// A text; `None` for an absent key or another type.
    pub fn str(&self, key: &str) -> Option<&str> {
        let id = self.id(key)?;
        // SAFETY: the type is checked; the text lives as long as the file.
        (self.kind(id) == sys::GGUF_TYPE_STRING)
            .then(|| unsafe { text(sys::gguf_get_val_str(self.ptr, id)) })
    }

    /// Type and bytes of an array of numbers or booleans.
    pub fn array(&self, key: &str) -> Option<(sys::gguf_type, &[u8])> {
        let id = self.id(key)?;
        if self.kind(id) != sys::GGUF_TYPE_ARRAY {
            return None;
        }
        // SAFETY: an array; its elements have a fixed size, and live as long as the file.
        unsafe {
            let kind = sys::gguf_get_arr_type(self.ptr, id);
            if kind == sys::GGUF_TYPE_STRING {
                return None;
            }
            let n = sys::gguf_get_arr_n(self.ptr, id) * element_size(kind);
            if n == 0 {
                return Some((kind, &[]));
            }
            let data = sys::gguf_get_arr_data(self.ptr, id);
            Some((kind, slice::from_raw_parts(data.cast(), n)))
        }
    }

    /// Elements of an array.
    pub fn array_elements(&self, key: &str) -> Option<(sys::gguf_type, Vec<&[u8]>)> {
        let (kind, bytes) = self.array(key)?;
        Some((kind, bytes.chunks(element_size(kind)).collect()))
    }

    /// Every key.
    pub fn keys(&self) -> Vec<&str> {
        // SAFETY: alive; ids up to the number of keys.
        unsafe {
            (0..sys::gguf_get_n_kv(self.ptr))
                .map(|id| text(sys::gguf_get_key(self.ptr, id)))
                .collect()
        }
    }

    /// Every tensor, in the file's order.
    pub fn tensors(&self) -> Vec<Tensor<'_>> {
        // SAFETY: alive; ids up to the number of tensors; a shape has four extents.
        unsafe {
            let start = sys::gguf_get_data_offset(self.ptr);
            (0..sys::gguf_get_n_tensors(self.ptr))
                .map(|id| {
                    let at = start + sys::gguf_get_tensor_offset(self.ptr, id);
                    Tensor {
                        name: text(sys::gguf_get_tensor_name(self.ptr, id)),
                        kind: sys::gguf_get_tensor_type(self.ptr, id),
                        ne: *sys::gguf_get_tensor_ne(self.ptr, id).cast::<[i64; 4]>(),
                        data: &self.bytes[at..at + sys::gguf_get_tensor_size(self.ptr, id)],
                    }
                })
                .collect()
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the only owner.
        unsafe { sys::gguf_free(self.ptr) }
    }
}

/// # Safety
///
/// A NUL-terminated text that lives as long as `'a`.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .expect("names and keys in UTF-8")
}
