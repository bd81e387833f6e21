#include "job.h"

#include "ggml.h"
#include "llama.h"

#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <stdexcept>

struct model_deleter {
    void operator()(llama_model * model) { llama_model_free(model); }
};

struct context_deleter {
    void operator()(llama_context * ctx) { llama_free(ctx); }
};

struct lora_deleter {
    void operator()(llama_adapter_lora * lora) { llama_adapter_lora_free(lora); }
};

using model_ptr   = std::unique_ptr<llama_model, model_deleter>;
using context_ptr = std::unique_ptr<llama_context, context_deleter>;
using lora_ptr    = std::unique_ptr<llama_adapter_lora, lora_deleter>;

struct cached_model {
    std::string path;
    model_ptr   model;
    json        log;
};

//
// log
//

static json * log_sink = nullptr;
static bool   log_all  = false;

static void log_callback(ggml_log_level level, const char * text, void *) {
    static const char * last = "debug";

    if (level != GGML_LOG_LEVEL_CONT) {
        last = level == GGML_LOG_LEVEL_ERROR ? "error" :
               level == GGML_LOG_LEVEL_WARN  ? "warn"  :
               level == GGML_LOG_LEVEL_INFO  ? "info"  : "debug";
    }
    if (log_sink != nullptr && (log_all || strcmp(last, "error") == 0)) {
        log_sink->push_back({ last, text });
    }
}

//
// parameters
//

static ggml_type type_from_name(const std::string & name) {
    for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
        const char * cur = ggml_type_name((ggml_type) i);
        if (cur != nullptr && name == cur) {
            return (ggml_type) i;
        }
    }
    throw std::runtime_error("no such type: " + name);
}

static llama_context_params context_params(const json & job) {
    llama_context_params res = llama_context_default_params();

    res.n_ctx           = job.at("n_ctx");
    res.n_batch         = job.at("n_batch");
    res.n_ubatch        = job.at("n_ubatch");
    res.n_seq_max       = job.at("n_seq_max");
    res.n_threads       = job.at("n_threads");
    res.n_threads_batch = job.at("n_threads");
    res.kv_unified      = job.at("kv_unified");
    res.offload_kqv     = job.at("offload_kqv");
    res.n_rs_seq        = job.at("n_rs_seq");
    res.flash_attn_type = job.at("flash_auto") ? LLAMA_FLASH_ATTN_TYPE_AUTO :
                          job.at("flash_attn") ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    res.type_k          = type_from_name(job.at("type_k"));
    res.type_v          = type_from_name(job.at("type_v"));
    res.swa_full        = job.at("swa_full");

    return res;
}

static cached_model & load_model(const std::string & path) {
    static const size_t n_max = 3;
    static std::list<cached_model> cache;

    for (auto it = cache.begin(); it != cache.end(); ++it) {
        if (it->path == path) {
            cache.splice(cache.begin(), cache, it);
            return cache.front();
        }
    }

    cached_model res = { path, nullptr, json::array() };
    log_sink = &res.log;
    res.model.reset(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
    log_sink = nullptr;
    if (!res.model) {
        throw std::runtime_error("cannot load " + path + ": " + res.log.dump());
    }

    while (cache.size() >= n_max) {
        cache.pop_back();
    }
    cache.push_front(std::move(res));
    return cache.front();
}

//
// steps
//

// logits of the tokens whose output was asked for, in the order of the batch
static int32_t decode(llama_context * ctx, const json & step, std::string & out) {
    std::vector<llama_token>  tokens = step.at("tokens");
    std::vector<llama_pos>    pos    = step.at("pos");
    std::vector<int8_t>       output = step.at("output");
    std::vector<std::vector<llama_seq_id>> seqs = step.at("seqs");

    std::vector<int32_t>        n_seq_id;
    std::vector<llama_seq_id *> seq_id;
    for (auto & s : seqs) {
        n_seq_id.push_back(s.size());
        seq_id.push_back(s.data());
    }
    if (pos.size() != tokens.size() || output.size() != tokens.size() || seqs.size() != tokens.size()) {
        throw std::runtime_error("the lists of a batch differ in length");
    }

    llama_batch batch = { (int32_t) tokens.size(), tokens.data(), nullptr, pos.data(), n_seq_id.data(), seq_id.data(), output.data() };

    const int32_t ret = llama_decode(ctx, batch);
    if (ret != 0) {
        return ret;
    }

    const size_t n_bytes = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)))*sizeof(float);
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (output[i]) {
            out.append((const char *) llama_get_logits_ith(ctx, i), n_bytes);
        }
    }
    return 0;
}

// states of the steps "keep", by slot
static std::map<int, std::vector<uint8_t>> kept;

static int32_t run_step(llama_context * ctx, const json & step, std::string & out) {
    const std::string op = step.at("op");

    if (op == "decode") {
        return decode(ctx, step, out);
    }
    if (op == "state") {
        out.resize(llama_state_get_size(ctx));
        out.resize(llama_state_get_data(ctx, (uint8_t *) out.data(), out.size()));
        return 0;
    }
    if (op == "save_state") {
        return llama_state_save_file(ctx, step.at("path").get<std::string>().c_str(), nullptr, 0) ? 0 : 1;
    }
    if (op == "load_state") {
        size_t n = 0;
        llama_token token;
        return llama_state_load_file(ctx, step.at("path").get<std::string>().c_str(), &token, 1, &n) ? 0 : 1;
    }

    if (op == "keep") {
        auto & state = kept[step.at("slot")];
        state.resize(llama_state_seq_get_size_ext(ctx, step.at("seq"), step.at("flags")));
        state.resize(llama_state_seq_get_data_ext(ctx, state.data(), state.size(), step.at("seq"), step.at("flags")));
        return state.empty() ? 1 : 0;
    }
    if (op == "restore") {
        const auto & state = kept.at(step.at("slot"));
        return llama_state_seq_set_data_ext(ctx, state.data(), state.size(), step.at("seq"), step.at("flags")) > 0 ? 0 : 1;
    }

    llama_memory_t mem = llama_get_memory(ctx);
    if (op == "clear") {
        llama_memory_clear(mem, true);
        return 0;
    }

    const llama_seq_id seq = step.at("seq");
    if (op == "seq_state") {
        out.resize(llama_state_seq_get_size(ctx, seq));
        out.resize(llama_state_seq_get_data(ctx, (uint8_t *) out.data(), out.size(), seq));
        return 0;
    }
    if (op == "save_seq") {
        return llama_state_seq_save_file(ctx, step.at("path").get<std::string>().c_str(), seq, nullptr, 0) > 0 ? 0 : 1;
    }
    if (op == "load_seq") {
        size_t n = 0;
        llama_token token;
        return llama_state_seq_load_file(ctx, step.at("path").get<std::string>().c_str(), seq, &token, 1, &n) > 0 ? 0 : 1;
    }
    if (op == "seq_keep") {
        llama_memory_seq_keep(mem, seq);
        return 0;
    }

    const llama_pos p0 = step.at("p0");
    const llama_pos p1 = step.at("p1");
    if (op == "seq_rm") {
        return llama_memory_seq_rm(mem, seq, p0, p1) ? 0 : 1;
    }
    if (op == "seq_cp") {
        llama_memory_seq_cp(mem, seq, step.at("dst"), p0, p1);
        return 0;
    }
    if (op == "seq_add") {
        llama_memory_seq_add(mem, seq, p0, p1, step.at("delta"));
        return 0;
    }
    throw std::runtime_error("no such step: " + op);
}

static void set_loras(llama_model * model, llama_context * ctx, const json & job, std::vector<lora_ptr> & loras) {
    std::vector<llama_adapter_lora *> list;
    std::vector<float> scales;
    for (const auto & [path, scale] : job.at("loras").get<std::vector<std::pair<std::string, float>>>()) {
        loras.emplace_back(llama_adapter_lora_init(model, path.c_str()));
        if (!loras.back()) {
            throw std::runtime_error("cannot load " + path);
        }
        list.push_back(loras.back().get());
        scales.push_back(scale);
    }
    if (!list.empty() && llama_set_adapters_lora(ctx, list.data(), list.size(), scales.data()) != 0) {
        throw std::runtime_error("cannot use the LoRA adapters");
    }
}

static void set_control_vector(llama_model * model, llama_context * ctx, const json & job) {
    const std::vector<float> data = job.at("control");
    if (!data.empty() && llama_set_adapter_cvec(ctx, data.data(), data.size(), llama_model_n_embd(model), 1, llama_model_n_layer(model) - 1) != 0) {
        throw std::runtime_error("cannot use the control vector");
    }
}

job_result job_run(const json & job) {
    llama_log_set(log_callback, nullptr);

    job_result res;
    json error = nullptr;
    json log   = json::array();
    json rets  = json::array();
    json sizes = json::array();
    json model_log = json::array();

    try {
        log_all = job.at("verbose");
        cached_model & model = load_model(job.at("model"));
        model_log = model.log;

        log_sink = &log;
        std::vector<lora_ptr> loras;
        context_ptr ctx(llama_init_from_model(model.model.get(), context_params(job)));
        if (!ctx) {
            throw std::runtime_error("llama_init_from_model: NULL");
        }
        set_loras(model.model.get(), ctx.get(), job, loras);
        set_control_vector(model.model.get(), ctx.get(), job);
        for (const auto & step : job.at("steps")) {
            res.out.emplace_back();
            rets.push_back(run_step(ctx.get(), step, res.out.back()));
        }
    } catch (const std::exception & e) {
        error = e.what();
        if (res.out.size() > rets.size()) {
            res.out.pop_back();
        }
    }
    log_sink = nullptr;

    for (const auto & bytes : res.out) {
        sizes.push_back(bytes.size());
    }
    res.header = { { "error", error }, { "rets", rets }, { "sizes", sizes }, { "log", log }, { "model_log", model_log } };
    return res;
}
