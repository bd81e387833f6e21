//! Reading a GGUF header. The getters of gguf.h abort on a wrong type, so every value is asked for
//! its type first.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use llama_sys as sys;

use crate::ffi::{self, call, or_unknown};
use crate::log::printable;
use crate::{Error, Result};

/// The header of an open file.
pub(crate) struct Gguf {
    ptr: NonNull<sys::gguf_context>,
    path: PathBuf,
}

impl Drop for Gguf {
    fn drop(&mut self) {
        // SAFETY: the only owner.
        unsafe { sys::gguf_free(self.ptr.as_ptr()) };
    }
}

impl Gguf {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let info = std::fs::metadata(path).map_err(Error::io(path))?;
        let refuse = |reason: String| Error::Header {
            path: path.to_path_buf(),
            reason,
        };
        if info.is_dir() {
            return Err(refuse("it is a directory; give a GGUF file".to_owned()));
        }
        if !info.is_file() {
            return Err(refuse("it is not a regular file".to_owned()));
        }
        // says why, where C's fopen would leave an errno in a log line
        drop(std::fs::File::open(path).map_err(Error::io(path))?);
        if info.len() == 0 {
            return Err(refuse("it is empty".to_owned()));
        }
        ffi::init()?;
        let c_path = ffi::c_path(path)?;
        let params = sys::gguf_init_params {
            no_alloc: true,
            ctx: ptr::null_mut(),
        };
        let mut out = ptr::null_mut();
        let done = call(|err| {
            // SAFETY: the path is NUL-terminated; no tensor context is asked for.
            unsafe { sys::rys_gguf_init_from_file(c_path.as_ptr(), params, &mut out, err) }
        });
        let (Ok(reason) | Err(reason)) = done;
        let ptr = NonNull::new(out).ok_or_else(|| refuse(or_unknown(reason)))?;
        Ok(Self {
            ptr,
            path: path.to_path_buf(),
        })
    }

    pub(crate) fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Header {
            path: self.path.clone(),
            reason: printable(&reason.into()),
        }
    }

    fn find(&self, key: &str) -> Result<Option<(i64, sys::gguf_type)>> {
        let c_key = CString::new(key)
            .map_err(|_| self.refuse("general.architecture has a NUL byte".to_owned()))?;
        // SAFETY: the header is alive; the type is asked of a key that exists.
        unsafe {
            let id = sys::gguf_find_key(self.ptr.as_ptr(), c_key.as_ptr());
            Ok((id >= 0).then(|| (id, sys::gguf_get_kv_type(self.ptr.as_ptr(), id))))
        }
    }

    fn wrong_type(&self, key: &str, got: sys::gguf_type, wanted: &str) -> Error {
        // SAFETY: null or a NUL-terminated name that lives forever.
        let got = unsafe {
            let name = sys::gguf_type_name(got);
            if name.is_null() {
                c"unknown"
            } else {
                CStr::from_ptr(name)
            }
        };
        self.refuse(format!(
            "key {key} has type {} where {wanted} is needed",
            got.to_string_lossy()
        ))
    }

    /// A string, as far as its first NUL byte; `None` if the key is absent.
    pub(crate) fn string(&self, key: &str) -> Result<Option<String>> {
        match self.find(key)? {
            None => Ok(None),
            Some((id, sys::GGUF_TYPE_STRING)) => {
                // SAFETY: a string by its type, NUL-terminated, alive with the header.
                let text = unsafe { CStr::from_ptr(sys::gguf_get_val_str(self.ptr.as_ptr(), id)) };
                Ok(Some(text.to_string_lossy().into_owned()))
            }
            Some((_, other)) => Err(self.wrong_type(key, other, "str")),
        }
    }

    /// An unsigned integer of 32 bits, the type that llama.cpp wants for counts.
    pub(crate) fn u32(&self, key: &str) -> Result<Option<u32>> {
        match self.find(key)? {
            None => Ok(None),
            Some((id, sys::GGUF_TYPE_UINT32)) => {
                // SAFETY: of this type.
                Ok(Some(unsafe {
                    sys::gguf_get_val_u32(self.ptr.as_ptr(), id)
                }))
            }
            Some((_, other)) => Err(self.wrong_type(key, other, "u32")),
        }
    }

    /// The largest of a count or of an array of counts; `None` if absent or of another type, which
    /// the loader reports itself.
    pub(crate) fn largest(&self, key: &str) -> Result<Option<u32>> {
        let Some((id, kind)) = self.find(key)? else {
            return Ok(None);
        };
        let ptr = self.ptr.as_ptr();
        // SAFETY: every value is read as the type that it was asked for; array data is as long as
        // said, and aligned to its elements by the allocator.
        unsafe {
            if kind == sys::GGUF_TYPE_UINT32 {
                return Ok(Some(sys::gguf_get_val_u32(ptr, id)));
            }
            let element = (kind == sys::GGUF_TYPE_ARRAY).then(|| sys::gguf_get_arr_type(ptr, id));
            if !matches!(element, Some(sys::GGUF_TYPE_UINT32 | sys::GGUF_TYPE_INT32)) {
                return Ok(None);
            }
            let n = sys::gguf_get_arr_n(ptr, id);
            if n == 0 {
                return Ok(None);
            }
            let data = sys::gguf_get_arr_data(ptr, id).cast::<u32>();
            Ok(std::slice::from_raw_parts(data, n).iter().copied().max())
        }
    }

    /// The strings of an array; `None` if absent or of another type.
    pub(crate) fn strings(&self, key: &str) -> Result<Option<impl Iterator<Item = &CStr>>> {
        let ptr = self.ptr.as_ptr();
        let Some((id, sys::GGUF_TYPE_ARRAY)) = self.find(key)? else {
            return Ok(None);
        };
        // SAFETY: an array by its type.
        if unsafe { sys::gguf_get_arr_type(ptr, id) } != sys::GGUF_TYPE_STRING {
            return Ok(None);
        }
        // SAFETY: as above.
        let n = unsafe { sys::gguf_get_arr_n(ptr, id) };
        // SAFETY: an array of `n` NUL-terminated strings, alive with the header.
        Ok(Some((0..n).map(move |i| unsafe {
            CStr::from_ptr(sys::gguf_get_arr_str(ptr, id, i))
        })))
    }
}
