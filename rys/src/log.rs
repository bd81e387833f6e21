//! llama.cpp's log.
//!
//! llama.cpp reports why a call failed in its log only. The lines of level ERROR (or else WARN) that
//! a call logs on its own thread end up in the [`Error`](crate::Error) of that call. Everything, errors
//! included, also goes to the sink set by [`set_sink`]; with no sink nothing is printed.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use llama_sys as sys;

/// Severity of a line of llama.cpp's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Of interest to developers of llama.cpp.
    Debug,
    /// What was loaded and allocated; also the repeat plan of each context.
    Info,
    /// The call goes on, but perhaps not as wanted: layers repeated at the model's boundary.
    Warn,
    /// Why a call failed.
    Error,
}

type Sink = Arc<dyn Fn(Level, &str) + Send + Sync>;

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// What one call logged.
#[derive(Default)]
struct Captured {
    errors: String,
    warnings: String,
}

thread_local! {
    static CAPTURE: RefCell<Option<Captured>> = const { RefCell::new(None) };
    static LAST_LEVEL: RefCell<Level> = const { RefCell::new(Level::Debug) };
}

/// Sends llama.cpp's log to `sink`, for the whole process, in place of the sink before.
///
/// The sink is called on the thread that logs, with pieces as llama.cpp writes them: most end in
/// `\n`, a progress bar comes in parts. A panic of the sink is swallowed.
///
/// This crate holds locks while llama.cpp logs: a sink must not make or drop models, contexts
/// or adapters nor compute with them, as it may wait forever.
///
/// Code that calls `llama_log_set` itself (llama.cpp's server and tools do) takes the log away
/// from this crate; errors then carry less text.
///
/// ```
/// use rys::log::{Level, set_sink};
///
/// set_sink(|level, text| {
///     if level >= Level::Warn {
///         eprint!("{text}");
///     }
/// });
/// ```
#[doc(alias = "llama_log_set")]
pub fn set_sink(sink: impl Fn(Level, &str) + Send + Sync + 'static) {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(sink));
}

/// Discards llama.cpp's log, as at the start.
pub fn clear_sink() {
    *SINK.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Runs `f` and returns what it logged at level ERROR on this thread, in one line; without such
/// lines its warnings, as some failures give no more.
pub(crate) fn capture<T>(f: impl FnOnce() -> T) -> (T, String) {
    let outer = CAPTURE.replace(Some(Captured::default()));
    let value = f();
    let logged = CAPTURE.replace(outer).unwrap_or_default();
    let text = if logged.errors.is_empty() {
        logged.warnings
    } else {
        logged.errors
    };
    let lines: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .map(printable)
        .collect();
    (value, lines.join("; "))
}

/// `text` with control characters escaped: names from a model file must not reach a terminal raw.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Makes this module the receiver of llama.cpp's log.
pub(crate) fn install() {
    // SAFETY: the callback has the required signature, needs no user data and does not unwind.
    unsafe { sys::llama_log_set(Some(on_log), std::ptr::null_mut()) };
}

unsafe extern "C" fn on_log(level: sys::ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that lives during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // a panic must not cross into C++; there is nobody to report it to
    let _ = catch_unwind(AssertUnwindSafe(|| route(level, &text)));
}

fn route(level: sys::ggml_log_level, text: &str) {
    let level = match level {
        sys::GGML_LOG_LEVEL_CONT => LAST_LEVEL.with_borrow(|l| *l),
        sys::GGML_LOG_LEVEL_ERROR => Level::Error,
        sys::GGML_LOG_LEVEL_WARN => Level::Warn,
        sys::GGML_LOG_LEVEL_INFO => Level::Info,
        _ => Level::Debug,
    };
    LAST_LEVEL.set(level);
    CAPTURE.with_borrow_mut(|captured| {
        if let Some(captured) = captured {
            match level {
                Level::Error => captured.errors.push_str(text),
                Level::Warn => captured.warnings.push_str(text),
                Level::Info | Level::Debug => {}
            }
        }
    });
    let sink = SINK.read().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(sink) = sink {
        sink(level, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_keeps_errors_of_its_own_call() {
        let ((), outer) = capture(|| {
            route(sys::GGML_LOG_LEVEL_ERROR, "a: one\n");
            let ((), inner) = capture(|| route(sys::GGML_LOG_LEVEL_ERROR, "b: two"));
            assert_eq!(inner, "b: two");
            route(sys::GGML_LOG_LEVEL_INFO, "not this\n");
            route(sys::GGML_LOG_LEVEL_CONT, "nor its continuation\n");
            route(sys::GGML_LOG_LEVEL_ERROR, "c: three");
            route(sys::GGML_LOG_LEVEL_CONT, " and a half\n");
        });
        assert_eq!(outer, "a: one; c: three and a half");
    }

    #[test]
    fn warnings_stand_in_for_errors() {
        let ((), text) = capture(|| route(sys::GGML_LOG_LEVEL_WARN, "only a warning\n"));
        assert_eq!(text, "only a warning");
        let ((), text) = capture(|| {
            route(sys::GGML_LOG_LEVEL_WARN, "a warning\n");
            route(sys::GGML_LOG_LEVEL_ERROR, "an error\n");
        });
        assert_eq!(text, "an error");
    }

    #[test]
    fn lines_outside_a_capture_are_not_kept() {
        route(sys::GGML_LOG_LEVEL_ERROR, "before\n");
        assert_eq!(capture(|| ()).1, "");
    }

    #[test]
    fn control_characters_are_escaped() {
        let ((), text) = capture(|| route(sys::GGML_LOG_LEVEL_ERROR, "key 'é\x1b[31m'\n"));
        assert_eq!(text, r"key 'é\u{1b}[31m'");
    }
}
