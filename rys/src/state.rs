use std::ffi::CString;
use std::path::{Path, PathBuf};

use llama_sys as sys;
use tempfile::Builder;

use crate::ffi::{self, call, or_unknown};
use crate::{Context, Error, Result, SeqId, Token};

const SAVE: &str = "save";
const RESTORE: &str = "restore";

/// Saved state: of the whole context, or of one sequence.
///
/// A state fits a context of the same model and the same plan, and with the same
/// [`kv_unified`](crate::ContextParams::kv_unified) and cache types. One of another plan is refused
/// before anything is changed. Without a plan the bytes are those of plain llama.cpp, which can read them.
/// A state that is damaged further in may be refused only after the sequences that it would replace
/// were removed; [`clear`](Context::clear) then gives a usable context.
///
/// A context of a model without weights ([`ModelParams::no_alloc`](crate::ModelParams::no_alloc)) has
/// no state: [`Error::InvalidArgument`].
///
/// Files are written beside their destination and moved there when complete.
impl Context {
    /// The whole state: memory of every sequence and the last outputs.
    ///
    /// # Errors
    ///
    /// [`Error::State`].
    #[doc(alias = "llama_state_get_data")]
    pub fn state(&mut self) -> Result<Vec<u8>> {
        self.require_weights()?;
        let ctx = self.as_ptr();
        // SAFETY: the context is alive and used by nobody else.
        let size = sized(|ret, err| unsafe { sys::rys_state_get_size(ctx, ret, err) })?;
        fill(size, |buf, ret, err| {
            // SAFETY: the buffer is as long as said.
            unsafe { sys::rys_state_get_data(ctx, buf.as_mut_ptr(), buf.len(), ret, err) }
        })
    }

    /// Restores a whole state.
    ///
    /// # Errors
    ///
    /// [`Error::State`].
    #[doc(alias = "llama_state_set_data")]
    pub fn set_state(&mut self, state: &[u8]) -> Result<()> {
        self.require_weights()?;
        let ctx = self.as_ptr();
        let mut read = 0;
        let done = call(|err| {
            // SAFETY: the context is alive and used by nobody else; the bytes are as long as said.
            unsafe { sys::rys_state_set_data(ctx, state.as_ptr(), state.len(), &mut read, err) }
        });
        ok_if(done, read > 0, RESTORE)
    }

    /// Saves the whole state and the tokens that led to it.
    ///
    /// # Errors
    ///
    /// [`Error::State`] and [`Error::Io`]; an existing file is then as it was.
    #[doc(alias = "llama_state_save_file")]
    pub fn save_state(&mut self, path: impl AsRef<Path>, tokens: &[Token]) -> Result<()> {
        self.require_weights()?;
        let ctx = self.as_ptr();
        save(path.as_ref(), |file| {
            let mut saved = false;
            let done = call(|err| {
                // SAFETY: the context is alive and used by nobody else; the tokens are as many as
                // said.
                unsafe {
                    sys::rys_state_save_file(
                        ctx,
                        file.as_ptr(),
                        tokens.as_ptr(),
                        tokens.len(),
                        &mut saved,
                        err,
                    )
                }
            });
            ok_if(done, saved, SAVE)
        })
    }

    /// Restores a whole state and returns the tokens saved with it.
    ///
    /// # Errors
    ///
    /// [`Error::State`] and [`Error::Io`].
    #[doc(alias = "llama_state_load_file")]
    pub fn load_state(&mut self, path: impl AsRef<Path>) -> Result<Vec<Token>> {
        self.require_weights()?;
        let ctx = self.as_ptr();
        load(path.as_ref(), |file, tokens, n| {
            let mut loaded = false;
            let done = call(|err| {
                // SAFETY: the context is alive and used by nobody else; the buffer is as long as
                // said.
                unsafe {
                    sys::rys_state_load_file(
                        ctx,
                        file.as_ptr(),
                        tokens.as_mut_ptr(),
                        tokens.len(),
                        n,
                        &mut loaded,
                        err,
                    )
                }
            });
            ok_if(done, loaded, RESTORE)
        })
    }

    /// The state of one sequence.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max`; [`Error::State`].
    #[doc(alias = "llama_state_seq_get_data")]
    pub fn seq_state(&mut self, seq: SeqId) -> Result<Vec<u8>> {
        self.require_weights()?;
        self.require_seq(seq)?;
        let ctx = self.as_ptr();
        // SAFETY: the context is alive and used by nobody else.
        let size = sized(|ret, err| unsafe { sys::rys_state_seq_get_size(ctx, seq, ret, err) })?;
        fill(size, |buf, ret, err| {
            // SAFETY: the buffer is as long as said.
            unsafe { sys::rys_state_seq_get_data(ctx, buf.as_mut_ptr(), buf.len(), seq, ret, err) }
        })
    }

    /// Restores the state of one sequence, perhaps of another number, as sequence `seq`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max`; [`Error::State`].
    #[doc(alias = "llama_state_seq_set_data")]
    pub fn set_seq_state(&mut self, seq: SeqId, state: &[u8]) -> Result<()> {
        self.require_weights()?;
        self.require_seq(seq)?;
        let ctx = self.as_ptr();
        let mut read = 0;
        let done = call(|err| {
            // SAFETY: the context is alive and used by nobody else; the bytes are as long as said.
            unsafe {
                sys::rys_state_seq_set_data(ctx, state.as_ptr(), state.len(), seq, &mut read, err)
            }
        });
        ok_if(done, read > 0, RESTORE)
    }

    /// Saves the state of one sequence and the tokens that led to it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max`; [`Error::State`] and
    /// [`Error::Io`]; an existing file is then as it was.
    #[doc(alias = "llama_state_seq_save_file")]
    pub fn save_seq_state(
        &mut self,
        path: impl AsRef<Path>,
        seq: SeqId,
        tokens: &[Token],
    ) -> Result<()> {
        self.require_weights()?;
        self.require_seq(seq)?;
        let ctx = self.as_ptr();
        save(path.as_ref(), |file| {
            let mut written = 0;
            let done = call(|err| {
                // SAFETY: the context is alive and used by nobody else; the tokens are as many as
                // said.
                unsafe {
                    sys::rys_state_seq_save_file(
                        ctx,
                        file.as_ptr(),
                        seq,
                        tokens.as_ptr(),
                        tokens.len(),
                        &mut written,
                        err,
                    )
                }
            });
            ok_if(done, written > 0, SAVE)
        })
    }

    /// Restores the state of one sequence as sequence `seq` and returns the tokens saved with it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a sequence outside `0..n_seq_max`; [`Error::State`] and
    /// [`Error::Io`].
    #[doc(alias = "llama_state_seq_load_file")]
    pub fn load_seq_state(&mut self, path: impl AsRef<Path>, seq: SeqId) -> Result<Vec<Token>> {
        self.require_weights()?;
        self.require_seq(seq)?;
        let ctx = self.as_ptr();
        load(path.as_ref(), |file, tokens, n| {
            let mut read = 0;
            let done = call(|err| {
                // SAFETY: the context is alive and used by nobody else; the buffer is as long as
                // said.
                unsafe {
                    sys::rys_state_seq_load_file(
                        ctx,
                        file.as_ptr(),
                        seq,
                        tokens.as_mut_ptr(),
                        tokens.len(),
                        n,
                        &mut read,
                        err,
                    )
                }
            });
            ok_if(done, read > 0, RESTORE)
        })
    }
}

fn ok_if(done: Result<String, String>, ok: bool, action: &'static str) -> Result<()> {
    match done {
        Ok(_) if ok => Ok(()),
        Ok(logged) => Err(Error::State {
            action,
            reason: or_unknown(logged),
        }),
        Err(reason) => Err(Error::State { action, reason }),
    }
}

fn sized(f: impl FnOnce(*mut usize, *mut sys::rys_error) -> i32) -> Result<usize> {
    let mut size = 0;
    let done = call(|err| f(&mut size, err));
    ok_if(done, size > 0, SAVE)?;
    Ok(size)
}

fn fill(
    size: usize,
    f: impl FnOnce(&mut [u8], *mut usize, *mut sys::rys_error) -> i32,
) -> Result<Vec<u8>> {
    let mut buf = vec![0; size];
    let mut written = 0;
    let done = call(|err| f(&mut buf, &mut written, err));
    ok_if(done, written > 0, SAVE)?;
    buf.truncate(written);
    Ok(buf)
}

fn save(path: &Path, write: impl FnOnce(CString) -> Result<()>) -> Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let mut partial = Builder::new();
    partial.prefix(".rys-state-");
    // what a file made by fopen() gets; the umask takes its part
    #[cfg(unix)]
    partial.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let partial = partial
        .tempfile_in(dir)
        .map_err(Error::io(path))?
        .into_temp_path();
    write(ffi::c_path(&partial)?)?;
    partial.persist(path).map_err(|e| Error::Io {
        path: PathBuf::from(path),
        source: e.error,
    })
}

fn load(
    path: &Path,
    read: impl FnOnce(CString, &mut [Token], &mut usize) -> Result<()>,
) -> Result<Vec<Token>> {
    let info = std::fs::metadata(path).map_err(Error::io(path))?;
    if !info.is_file() {
        return Err(Error::State {
            action: RESTORE,
            reason: "not a regular file".to_owned(),
        });
    }
    // no file holds more tokens than this; pages that stay unused cost nothing
    let mut tokens =
        vec![0; usize::try_from(info.len()).unwrap_or(usize::MAX) / size_of::<Token>()];
    let mut n = 0;
    read(ffi::c_path(path)?, &mut tokens, &mut n)?;
    tokens.truncate(n);
    tokens.shrink_to_fit();
    Ok(tokens)
}
