#include "shim.h"
#include "unwind.h"

#include "common.h"
#include "log.h"
#include "repeat-layers.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

// upstream's headers do not declare them
int llama_server(int argc, char ** argv);
int llama_cli(int argc, char ** argv);
int llama_completion(int argc, char ** argv);

namespace {

rys_tool_checks checks;

struct log_target {
    ggml_log_callback callback = nullptr;
    void *            data     = nullptr;

    static log_target current() {
        log_target res;
        llama_log_get(&res.callback, &res.data);
        return res;
    }
    void use() const { llama_log_set(callback, data); }
};

// the log of the program around the tool: errors met while checking go there
log_target log_outside;

void end_unless_zero(int32_t code) {
    if (code != 0) {
        fflush(stdout);
        std::exit(code);
    }
}

void on_refused(const std::string & spec) {
    common_log_flush(common_log_main()); // its thread would write into our lines
    end_unless_zero(checks.refused(checks.data, spec.data(), spec.size()));
}

void on_params(const common_params & params) {
    if (params.usage) {
        // the tool prints its help and then exits
        std::atexit([] { fputs(checks.help, stdout); });
        return;
    }
    if (params.completion) {
        return;
    }
    common_log_flush(common_log_main());
    const auto log_inside = log_target::current();
    log_outside.use();
    const auto & m = params.model;
    const rys_tool_params p = {
        params.repeat_layers_spec.c_str(),
        m.path.c_str(),
        params.speculative.draft.mparams.path.c_str(),
        !m.url.empty() || !m.hf_repo.empty() || !m.docker_repo.empty(),
        params.split_mode == LLAMA_SPLIT_MODE_TENSOR,
    };
    const int32_t code = checks.params(checks.data, &p);
    log_inside.use();
    end_unless_zero(code);
}

int32_t run(int32_t tool, int32_t argc, char ** argv) {
    try {
        common_repeat_layers_set_callbacks({ on_refused, on_params });
        switch (tool) {
            case RYS_TOOL_SERVER:     return llama_server(argc, argv);
            case RYS_TOOL_CHAT:       return llama_cli(argc, argv);
            case RYS_TOOL_COMPLETION: return llama_completion(argc, argv);
        }
        fprintf(stderr, "error: there is no tool %d\n", tool);
    } catch (const std::exception & e) {
        fprintf(stderr, "error: %s\n", e.what());
    } catch (...) {
        fprintf(stderr, "error: the tool ended with an exception that is not a std::exception\n");
    }
    return 1;
}

} // namespace

int32_t rys_tool_main(int32_t tool, int32_t argc, char ** argv, const rys_tool_checks * around) {
    checks      = *around;
    log_outside = log_target::current();
    // a tool may load its model on a thread of its own, whose loader reports exceptions
    unwind_everywhere();

    const int32_t code = run(tool, argc, argv);
    common_log_flush(common_log_main()); // why it failed may still be in the queue
    return code;
}
