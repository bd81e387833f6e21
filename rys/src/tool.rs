//! llama.cpp's own programs, run inside this process.

use std::ffi::{CStr, CString, OsString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr;

use llama_sys as sys;

use crate::Result;
use crate::ffi;

/// A program of llama.cpp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `llama-server`: the HTTP server.
    Server,
    /// `llama-cli`: a chat in the terminal.
    Chat,
    /// `llama-completion`: text after a prompt.
    Completion,
}

/// What a tool is about to run, once its config file, environment and command line are read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolParams {
    /// Repeats as given; `None` without.
    pub spec: Option<String>,
    /// The model's file; `None` without a model, or when it is still to be downloaded.
    pub model: Option<PathBuf>,
    /// The same for the draft model of speculative decoding.
    pub draft: Option<PathBuf>,
    /// Whether the model is downloaded: its file may not exist yet.
    pub remote: bool,
    /// Whether each tensor is split over the devices (`--split-mode tensor`).
    pub split_tensor: bool,
}

/// Code to end the process with.
pub type Exit = std::num::NonZeroU8;

/// What the program around a tool adds to it.
pub trait Checks {
    /// A spec that the tool's parser refused.
    fn refused(&self, spec: &str) -> Exit;

    /// Checks the final parameters, before a model is read. A server that downloads its model asks
    /// again afterwards.
    ///
    /// # Errors
    /// The code to end the process with.
    fn params(&self, params: &ToolParams) -> Result<(), Exit>;

    /// Text that follows the tool's own `--help`.
    fn help(&self) -> String;
}

struct Around<'a> {
    checks: &'a dyn Checks,
}

/// Runs a tool with `args`, the program's name first, and returns its exit code.
///
/// The tool takes over the process: it sets the log's receiver and signal handlers, prints, and may
/// exit by itself, as it does for `--help` and for a check that fails. An assertion that fails where
/// llama.cpp handles exceptions, as while it loads a model, is a failure of the tool; elsewhere it ends
/// the process. Call this once, at the end of `main`.
///
/// # Errors
/// An argument with a NUL byte; llama.cpp could not start.
pub fn run(
    tool: Tool,
    args: impl IntoIterator<Item = OsString>,
    checks: &dyn Checks,
) -> Result<i32> {
    ffi::init()?;
    let args = args
        .into_iter()
        .map(|arg| ffi::c_path(Path::new(&arg)))
        .collect::<Result<Vec<CString>>>()?;
    let mut argv: Vec<*mut c_char> = args.iter().map(|a| a.as_ptr().cast_mut()).collect();
    let argc = ffi::c_len("the command line", argv.len())?;
    argv.push(ptr::null_mut());

    let help = ffi::c_string("the help text", checks.help())?;
    let around = Around { checks };
    let c = sys::rys_tool_checks {
        data: ptr::from_ref(&around).cast_mut().cast(),
        refused: Some(on_refused),
        params: Some(on_params),
        help: help.as_ptr(),
    };
    let tool = match tool {
        Tool::Server => sys::RYS_TOOL_SERVER,
        Tool::Chat => sys::RYS_TOOL_CHAT,
        Tool::Completion => sys::RYS_TOOL_COMPLETION,
    };
    // SAFETY: `argv` is a NULL-terminated array of `argc` strings that nothing else writes to; the
    // checks, their data and the help text outlive the call and an exit within it.
    Ok(unsafe { sys::rys_tool_main(tool.cast_signed(), argc, argv.as_mut_ptr(), &c) })
}

/// A panic must not cross into C++; its message is printed by the panic hook.
fn code(f: impl FnOnce() -> Result<(), Exit>) -> i32 {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => 0,
        Ok(Err(exit)) => exit.get().into(),
        Err(_) => 1,
    }
}

unsafe extern "C" fn on_refused(data: *mut c_void, spec: *const c_char, len: usize) -> i32 {
    // SAFETY: `run` passes an `Around` that outlives the tool, and the shim `len` bytes.
    let (around, spec) = unsafe {
        (
            &*data.cast::<Around>(),
            std::slice::from_raw_parts(spec.cast::<u8>(), len),
        )
    };
    code(|| Err(around.checks.refused(&String::from_utf8_lossy(spec))))
}

unsafe extern "C" fn on_params(data: *mut c_void, params: *const sys::rys_tool_params) -> i32 {
    // SAFETY: as above; the strings of `params` are NUL-terminated and live during the call.
    let (around, spec, model, draft, p) = unsafe {
        let p = &*params;
        (
            &*data.cast::<Around>(),
            CStr::from_ptr(p.spec),
            CStr::from_ptr(p.model),
            CStr::from_ptr(p.model_draft),
            p,
        )
    };
    code(|| {
        around.checks.params(&ToolParams {
            spec: (!spec.is_empty()).then(|| spec.to_string_lossy().into_owned()),
            model: path(model),
            draft: path(draft),
            remote: p.remote,
            split_tensor: p.split_tensor,
        })
    })
}

fn path(text: &CStr) -> Option<PathBuf> {
    if text.is_empty() {
        return None;
    }
    #[cfg(unix)]
    let path = {
        use std::os::unix::ffi::OsStrExt;
        PathBuf::from(std::ffi::OsStr::from_bytes(text.to_bytes()))
    };
    #[cfg(not(unix))]
    let path = PathBuf::from(text.to_string_lossy().into_owned());
    Some(path)
}
