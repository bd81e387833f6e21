// Failed assertions as exceptions.
#pragma once

#include <stdexcept>

struct assertion_failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// while one lives, a GGML_ASSERT or GGML_ABORT on its thread throws assertion_failed
struct unwind_scope {
    unwind_scope();
    ~unwind_scope();

    unwind_scope(const unwind_scope &) = delete;
    unwind_scope & operator=(const unwind_scope &) = delete;
};

// the same from now on, on every thread; one that nothing catches ends the process, as ever
void unwind_everywhere();
