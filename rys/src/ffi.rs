//! One way into llama.cpp: every shim call goes through [`call`].

use std::any::Any;
use std::ffi::{CStr, CString};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use llama_sys as sys;

use crate::{Error, Result, log};

/// Starts llama.cpp once per process.
pub(crate) fn init() -> Result<()> {
    static INIT: OnceLock<Result<(), String>> = OnceLock::new();
    INIT.get_or_init(|| {
        log::install();
        // SAFETY: `err` is a valid buffer.
        call(|err| unsafe { sys::rys_backend_init(err) }).map(drop)
    })
    .clone()
    .map_err(|reason| Error::Llama {
        call: "llama_backend_init",
        reason,
    })
}

/// Runs a shim function. `Ok` carries the ERROR lines that it logged, for a caller that finds a
/// null or negative result; `Err` the text of a C++ exception, after the lines logged before it.
pub(crate) fn call(f: impl FnOnce(*mut sys::rys_error) -> i32) -> Result<String, String> {
    let mut err = sys::rys_error { text: [0; 1024] };
    let (status, logged) = log::capture(|| f(&mut err));
    if status == sys::RYS_OK as i32 {
        return Ok(logged);
    }
    // SAFETY: the shim always terminates the text.
    let thrown = unsafe { CStr::from_ptr(err.text.as_ptr()) }.to_string_lossy();
    Err(if logged.is_empty() {
        thrown.into_owned()
    } else {
        format!("{logged}; {thrown}")
    })
}

/// The text to report when llama.cpp failed without a word.
pub(crate) fn or_unknown(logged: String) -> String {
    if logged.is_empty() {
        "llama.cpp gave no reason".to_owned()
    } else {
        logged
    }
}

/// Held while contexts are made and freed, and models freed: upstream changes the shared model's
/// training context size there without a lock of its own. A model's list of adapters has a lock in
/// [`Model`](crate::Model); take that one first.
pub(crate) fn creation_lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A panic caught in a callback, to be raised again once llama.cpp has returned.
#[derive(Default)]
pub(crate) struct CaughtPanic(Option<Box<dyn Any + Send>>);

impl CaughtPanic {
    pub(crate) fn set(&mut self, payload: Box<dyn Any + Send>) {
        self.0.get_or_insert(payload);
    }

    pub(crate) fn resume(self) {
        if let Some(payload) = self.0 {
            resume_unwind(payload);
        }
    }
}

pub(crate) fn c_string(what: &str, text: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(text).map_err(|e| {
        Error::invalid(format!(
            "{what} has a NUL byte at offset {}; llama.cpp cannot take it",
            e.nul_position()
        ))
    })
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec();
    #[cfg(not(unix))]
    let bytes = path
        .to_str()
        .ok_or_else(|| Error::invalid("a path must be valid Unicode on this system"))?
        .as_bytes()
        .to_vec();
    c_string("the path", bytes)
}

/// `len` as C's `int32_t`.
pub(crate) fn c_len(what: &str, len: usize) -> Result<i32> {
    i32::try_from(len).map_err(|_| {
        Error::invalid(format!(
            "{what}: {len} is above the maximum of {}",
            i32::MAX
        ))
    })
}

/// Calls `f` with a growing buffer until what it returns fits: llama.cpp answers a buffer that is
/// too small with the negated size.
pub(crate) fn sized<T: Copy + Default>(
    what: &'static str,
    guess: usize,
    mut f: impl FnMut(*mut T, i32, *mut i32, *mut sys::rys_error) -> i32,
) -> Result<Vec<T>> {
    let mut buf = vec![T::default(); guess];
    loop {
        let mut ret = 0;
        let capacity = c_len(what, buf.len())?;
        let logged = call(|err| f(buf.as_mut_ptr(), capacity, &mut ret, err))
            .map_err(|reason| Error::Llama { call: what, reason })?;
        if ret >= 0 && ret <= capacity {
            buf.truncate(ret as usize);
            return Ok(buf);
        }
        let needed = ret.checked_abs().filter(|&n| n > capacity);
        let Some(needed) = needed else {
            return Err(Error::Llama {
                call: what,
                reason: or_unknown(logged),
            });
        };
        buf.resize(needed as usize, T::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_bytes_are_refused_with_their_offset() {
        let err = c_string("the grammar", "ab\0c").unwrap_err();
        assert_eq!(
            err.to_string(),
            "the grammar has a NUL byte at offset 2; llama.cpp cannot take it"
        );
    }

    #[test]
    fn sized_grows_to_the_answer() {
        let out = sized::<u8>("x", 1, |buf, cap, ret, _| {
            if cap < 3 {
                // SAFETY: `ret` points to an i32 of `sized`.
                unsafe { *ret = -3 };
            } else {
                // SAFETY: `buf` has room for `cap` >= 3 bytes.
                unsafe {
                    buf.copy_from(b"abc".as_ptr(), 3);
                    *ret = 3;
                }
            }
            0
        });
        assert_eq!(out.unwrap(), b"abc");
    }

    #[test]
    fn sized_reports_an_overflow() {
        let out = sized::<u8>("x", 1, |_, _, ret, _| {
            // SAFETY: `ret` points to an i32 of `sized`.
            unsafe { *ret = i32::MIN };
            0
        });
        assert_eq!(out.unwrap_err().to_string(), "x: llama.cpp gave no reason");
    }
}
