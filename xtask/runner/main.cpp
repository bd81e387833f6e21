// One measurement: loads a model, evaluates a prompt, then token by token, and prints a line of JSON.
//
//   rys-bench-runner MODEL N_PREFILL N_DECODE N_CTX N_THREADS MMAP WARMUP [START END]...
//
// MMAP and WARMUP are 0 or 1. Blocks [START, END) are repeated; only a patched build takes them. The
// functions bench_* are the phases that callgrind counts by name.

#include "llama.h"
#include "llama-ext.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if !defined(_WIN32)
#include <sys/resource.h>
#endif

struct bench {
    std::string path;
    int32_t     n_prefill = 0;
    int32_t     n_decode  = 0;
    bool        mmap      = true;

    llama_context_params     cparams = llama_context_default_params();
    std::vector<llama_token> tokens;

    llama_model   * model = nullptr;
    llama_context * ctx   = nullptr;
};

extern "C" {

__attribute__((noinline)) bool bench_load(bench & b) {
    llama_model_params mparams = llama_model_default_params();
    mparams.load_mode = b.mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;

    b.model = llama_model_load_from_file(b.path.c_str(), mparams);
    b.ctx   = b.model ? llama_init_from_model(b.model, b.cparams) : nullptr;

    return b.ctx != nullptr;
}

__attribute__((noinline)) bool bench_prefill(bench & b) {
    const int32_t n_batch = llama_n_batch(b.ctx);

    for (int32_t i = 0; i < b.n_prefill; i += n_batch) {
        const int32_t n = std::min(n_batch, b.n_prefill - i);
        if (llama_decode(b.ctx, llama_batch_get_one(b.tokens.data() + i, n)) != 0) {
            return false;
        }
    }
    llama_synchronize(b.ctx);

    return true;
}

__attribute__((noinline)) bool bench_decode(bench & b) {
    for (int32_t i = 0; i < b.n_decode; ++i) {
        if (llama_decode(b.ctx, llama_batch_get_one(b.tokens.data() + b.n_prefill + i, 1)) != 0) {
            return false;
        }
        llama_synchronize(b.ctx);
    }

    return true;
}

}

// FNV-1a over the logits of the last token
static uint64_t logits_hash(const bench & b, uint64_t hash) {
    const float * logits = llama_get_logits_ith(b.ctx, -1);
    if (logits == nullptr) {
        return 0;
    }
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(b.model));
    const auto  * bytes   = reinterpret_cast<const unsigned char *>(logits);
    for (size_t i = 0; i < n_vocab*sizeof(float); ++i) {
        hash = (hash ^ bytes[i])*UINT64_C(0x100000001b3);
    }
    return hash;
}

static uint64_t peak_rss() {
#if defined(__linux__)
    // not getrusage: its peak starts with that of the process that started this one
    uint64_t kib = 0;
    if (FILE * f = fopen("/proc/self/status", "r")) {
        char line[256];
        while (fgets(line, sizeof(line), f)) {
            if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1) {
                break;
            }
        }
        fclose(f);
    }
    return kib*1024;
#elif !defined(_WIN32)
    rusage usage {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
#else
    return 0;
#endif
}

// time of a phase in microseconds, or exits
static int64_t timed(bench & b, bool (*phase)(bench &), const char * name) {
    const int64_t start = llama_time_us();
    if (!phase(b)) {
        fprintf(stderr, "the phase %s failed\n", name);
        exit(1);
    }
    return llama_time_us() - start;
}

int main(int argc, char ** argv) {
    if (argc < 8 || argc % 2 != 0) {
        fprintf(stderr, "usage: %s MODEL N_PREFILL N_DECODE N_CTX N_THREADS MMAP WARMUP [START END]...\n", argv[0]);
        return 2;
    }

    bench b;
    b.path      = argv[1];
    b.n_prefill = atoi(argv[2]);
    b.n_decode  = atoi(argv[3]);
    b.mmap      = atoi(argv[6]) != 0;

    b.cparams.n_ctx           = atoi(argv[4]);
    b.cparams.n_threads       = atoi(argv[5]);
    b.cparams.n_threads_batch = atoi(argv[5]);

    const bool warmup = atoi(argv[7]) != 0;

#if defined(RYS_PATCHED)
    std::vector<llama_layer_block> blocks;
    for (int i = 8; i < argc; i += 2) {
        blocks.push_back({ atoi(argv[i]), atoi(argv[i + 1]) });
    }
    b.cparams.repeat_layers   = blocks.data();
    b.cparams.n_repeat_layers = blocks.size();
#else
    if (argc > 8) {
        fprintf(stderr, "this build cannot repeat layers\n");
        return 2;
    }
#endif

    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();

    const int64_t load_us = timed(b, bench_load, "load");

    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(b.model));
    uint32_t rng = 1;
    for (int32_t i = 0; i < b.n_prefill + b.n_decode; ++i) {
        rng = rng*1664525u + 1013904223u;
        b.tokens.push_back((rng >> 8) % n_vocab);
    }

    if (warmup) {
        bench w = b;
        w.n_prefill = std::min(b.n_prefill, 8);
        w.n_decode  = std::min(b.n_decode,  1);
        timed(w, bench_prefill, "warm-up");
        timed(w, bench_decode,  "warm-up");
        llama_memory_clear(llama_get_memory(b.ctx), true);
    }

    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    const int64_t prefill_us = timed(b, bench_prefill, "prefill");
    hash = logits_hash(b, hash);
    const int64_t decode_us = timed(b, bench_decode, "decode");
    hash = logits_hash(b, hash);

    size_t weights = 0;
    size_t cache   = 0;
    size_t compute = 0;
    for (const auto & [buft, data] : llama_get_memory_breakdown(b.ctx)) {
        weights += data.model;
        cache   += data.context;
        compute += data.compute;
    }

    const int32_t n_layer = llama_model_n_layer(b.model);
#if defined(RYS_PATCHED)
    const int32_t n_layer_eff = llama_n_layer_eff(b.ctx);
#else
    const int32_t n_layer_eff = n_layer;
#endif

    printf("{\"n_layer\": %d, \"n_layer_eff\": %d, \"n_ctx\": %u, "
           "\"load_us\": %" PRId64 ", \"prefill_us\": %" PRId64 ", \"decode_us\": %" PRId64 ", "
           "\"weight_bytes\": %zu, \"cache_bytes\": %zu, \"compute_bytes\": %zu, \"peak_rss_bytes\": %" PRIu64 ", "
           "\"logits\": \"%016" PRIx64 "\"}\n",
            n_layer, n_layer_eff, llama_n_ctx(b.ctx),
            load_us, prefill_us, decode_us,
            weights, cache, compute, peak_rss(),
            hash);

    llama_free(b.ctx);
    llama_model_free(b.model);
    llama_backend_free();

    return fflush(stdout) == 0 ? 0 : 1;
}
