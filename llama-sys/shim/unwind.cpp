#include "unwind.h"

#include "ggml.h"

#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>

extern "C" void ggml_print_backtrace(void);

namespace {

// > 0: an assertion on this thread may unwind
thread_local int unwind_depth = 0;

std::atomic<bool> everywhere{false};

// ggml_abort() calls abort() when this returns; to throw during an unwinding would end the process as well
void on_abort(const char * message) {
    if ((unwind_depth > 0 || everywhere) && std::uncaught_exceptions() == 0) {
        throw assertion_failed(message);
    }
    fprintf(stderr, "%s\n", message);
    ggml_print_backtrace();
}

void install() {
    static std::once_flag once;
    std::call_once(once, [] { ggml_set_abort_callback(on_abort); });
}

} // namespace

unwind_scope::unwind_scope() {
    install();
    unwind_depth++;
}

unwind_scope::~unwind_scope() { unwind_depth--; }

void unwind_everywhere() {
    everywhere = true;
    install();
}
