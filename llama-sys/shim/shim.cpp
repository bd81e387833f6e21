#include "shim.h"
#include "unwind.h"

#include <cstdio>
#include <exception>
#include <stdexcept>

namespace {

void set_text(rys_error * err, const char * text) {
    if (err) {
        snprintf(err->text, sizeof(err->text), "%s", text);
    }
}

// runs f; every C++ exception becomes a status and a text
template <typename F>
int32_t guard_threads(rys_error * err, F && f) {
    set_text(err, "");
    try {
        f();
        return RYS_OK;
    } catch (const assertion_failed & e) {
        set_text(err, e.what());
        return RYS_ASSERT;
    } catch (const std::exception & e) {
        set_text(err, e.what());
    } catch (...) {
        set_text(err, "an exception that is not a std::exception");
    }
    return RYS_EXCEPTION;
}

// the same, for calls that stay on this thread: failed assertions become exceptions too
template <typename F>
int32_t guard(rys_error * err, F && f) {
    return guard_threads(err, [&] {
        unwind_scope scope;
        f();
    });
}

} // namespace

int32_t rys_backend_init(rys_error * err) {
    return guard(err, [&] {
        // an unpatched llama.cpp has no such symbol, and the linker says so by this name
        if (llama_layer_plan_abi_v1() != 1) {
            throw std::runtime_error("llama.cpp was built with another version of the layer-plan patches");
        }
        llama_backend_init();
    });
}

int32_t rys_model_load_from_file(const char * path, llama_model_params params, llama_model ** out, rys_error * err) {
    return guard(err, [&] { *out = llama_model_load_from_file(path, params); });
}

int32_t rys_model_init_from_user(gguf_context * metadata, llama_model_set_tensor_data_t set_tensor_data,
        void * userdata, llama_model_params params, llama_model ** out, rys_error * err) {
    return guard(err, [&] { *out = llama_model_init_from_user(metadata, set_tensor_data, userdata, params); });
}

int32_t rys_init_from_model(llama_model * model, llama_context_params params, llama_context ** out, rys_error * err) {
    return guard(err, [&] { *out = llama_init_from_model(model, params); });
}

int32_t rys_model_free(llama_model * model, rys_error * err) {
    return guard(err, [&] { llama_model_free(model); });
}

int32_t rys_free(llama_context * ctx, rys_error * err) {
    return guard(err, [&] { llama_free(ctx); });
}

int32_t rys_decode(llama_context * ctx, llama_batch batch, int32_t * ret, rys_error * err) {
    return guard_threads(err, [&] { *ret = llama_decode(ctx, batch); });
}

int32_t rys_encode(llama_context * ctx, llama_batch batch, int32_t * ret, rys_error * err) {
    return guard_threads(err, [&] { *ret = llama_encode(ctx, batch); });
}

int32_t rys_synchronize(llama_context * ctx, rys_error * err) {
    return guard_threads(err, [&] { llama_synchronize(ctx); });
}

int32_t rys_get_logits_ith(llama_context * ctx, int32_t i, float ** out, rys_error * err) {
    return guard(err, [&] { *out = llama_get_logits_ith(ctx, i); });
}

int32_t rys_get_embeddings_ith(llama_context * ctx, int32_t i, float ** out, rys_error * err) {
    return guard(err, [&] { *out = llama_get_embeddings_ith(ctx, i); });
}

int32_t rys_get_embeddings_seq(llama_context * ctx, llama_seq_id seq_id, float ** out, rys_error * err) {
    return guard(err, [&] { *out = llama_get_embeddings_seq(ctx, seq_id); });
}

int32_t rys_memory_clear(llama_memory_t mem, bool data, rys_error * err) {
    return guard(err, [&] { llama_memory_clear(mem, data); });
}

int32_t rys_memory_seq_rm(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
        bool * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_memory_seq_rm(mem, seq_id, p0, p1); });
}

int32_t rys_memory_seq_cp(llama_memory_t mem, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1,
        rys_error * err) {
    return guard(err, [&] { llama_memory_seq_cp(mem, src, dst, p0, p1); });
}

int32_t rys_memory_seq_keep(llama_memory_t mem, llama_seq_id seq_id, rys_error * err) {
    return guard(err, [&] { llama_memory_seq_keep(mem, seq_id); });
}

int32_t rys_memory_seq_add(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, llama_pos delta,
        rys_error * err) {
    return guard(err, [&] { llama_memory_seq_add(mem, seq_id, p0, p1, delta); });
}

int32_t rys_memory_seq_div(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, int32_t d,
        rys_error * err) {
    return guard(err, [&] { llama_memory_seq_div(mem, seq_id, p0, p1, d); });
}

int32_t rys_memory_seq_pos_min(llama_memory_t mem, llama_seq_id seq_id, llama_pos * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_memory_seq_pos_min(mem, seq_id); });
}

int32_t rys_memory_seq_pos_max(llama_memory_t mem, llama_seq_id seq_id, llama_pos * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_memory_seq_pos_max(mem, seq_id); });
}

int32_t rys_state_get_size(llama_context * ctx, size_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_get_size(ctx); });
}

int32_t rys_state_get_data(llama_context * ctx, uint8_t * dst, size_t size, size_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_get_data(ctx, dst, size); });
}

int32_t rys_state_set_data(llama_context * ctx, const uint8_t * src, size_t size, size_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_set_data(ctx, src, size); });
}

int32_t rys_state_save_file(llama_context * ctx, const char * path, const llama_token * tokens, size_t n_tokens,
        bool * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_save_file(ctx, path, tokens, n_tokens); });
}

int32_t rys_state_load_file(llama_context * ctx, const char * path, llama_token * tokens, size_t capacity,
        size_t * n_tokens, bool * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_load_file(ctx, path, tokens, capacity, n_tokens); });
}

int32_t rys_state_seq_get_size(llama_context * ctx, llama_seq_id seq_id, size_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_seq_get_size(ctx, seq_id); });
}

int32_t rys_state_seq_get_data(llama_context * ctx, uint8_t * dst, size_t size, llama_seq_id seq_id,
        size_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_seq_get_data(ctx, dst, size, seq_id); });
}

int32_t rys_state_seq_set_data(llama_context * ctx, const uint8_t * src, size_t size, llama_seq_id seq_id,
        size_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_seq_set_data(ctx, src, size, seq_id); });
}

int32_t rys_state_seq_save_file(llama_context * ctx, const char * path, llama_seq_id seq_id,
        const llama_token * tokens, size_t n_tokens, size_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_seq_save_file(ctx, path, seq_id, tokens, n_tokens); });
}

int32_t rys_state_seq_load_file(llama_context * ctx, const char * path, llama_seq_id seq_id, llama_token * tokens,
        size_t capacity, size_t * n_tokens, size_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_state_seq_load_file(ctx, path, seq_id, tokens, capacity, n_tokens); });
}

int32_t rys_tokenize(const llama_vocab * vocab, const char * text, int32_t text_len, llama_token * tokens,
        int32_t capacity, bool add_special, bool parse_special, int32_t * ret, rys_error * err) {
    return guard(err, [&] {
        *ret = llama_tokenize(vocab, text, text_len, tokens, capacity, add_special, parse_special);
    });
}

int32_t rys_token_to_piece(const llama_vocab * vocab, llama_token token, char * buf, int32_t length, bool special,
        int32_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_token_to_piece(vocab, token, buf, length, 0, special); });
}

int32_t rys_detokenize(const llama_vocab * vocab, const llama_token * tokens, int32_t n_tokens, char * text,
        int32_t capacity, bool remove_special, bool unparse_special, int32_t * ret, rys_error * err) {
    return guard(err, [&] {
        *ret = llama_detokenize(vocab, tokens, n_tokens, text, capacity, remove_special, unparse_special);
    });
}

int32_t rys_chat_apply_template(const char * tmpl, const llama_chat_message * chat, size_t n_msg, bool add_assistant,
        char * buf, int32_t length, int32_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_chat_apply_template(tmpl, chat, n_msg, add_assistant, buf, length); });
}

int32_t rys_adapter_lora_init(llama_model * model, const char * path, llama_adapter_lora ** out, rys_error * err) {
    return guard(err, [&] { *out = llama_adapter_lora_init(model, path); });
}

int32_t rys_adapter_lora_free(llama_adapter_lora * adapter, rys_error * err) {
    return guard(err, [&] { llama_adapter_lora_free(adapter); });
}

int32_t rys_set_adapters_lora(llama_context * ctx, llama_adapter_lora ** adapters, size_t n_adapters, float * scales,
        int32_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_set_adapters_lora(ctx, adapters, n_adapters, scales); });
}

int32_t rys_set_adapter_cvec(llama_context * ctx, const float * data, size_t len, int32_t n_embd, int32_t il_start,
        int32_t il_end, int32_t * ret, rys_error * err) {
    return guard(err, [&] { *ret = llama_set_adapter_cvec(ctx, data, len, n_embd, il_start, il_end); });
}

int32_t rys_sampler_sample(llama_sampler * smpl, llama_context * ctx, int32_t idx, llama_token * ret,
        rys_error * err) {
    return guard(err, [&] { *ret = llama_sampler_sample(smpl, ctx, idx); });
}

int32_t rys_sampler_accept(llama_sampler * smpl, llama_token token, rys_error * err) {
    return guard(err, [&] { llama_sampler_accept(smpl, token); });
}

int32_t rys_sampler_reset(llama_sampler * smpl, rys_error * err) {
    return guard(err, [&] { llama_sampler_reset(smpl); });
}

int32_t rys_sampler_init_grammar(const llama_vocab * vocab, const char * grammar, const char * root,
        llama_sampler ** out, rys_error * err) {
    return guard(err, [&] { *out = llama_sampler_init_grammar(vocab, grammar, root); });
}

int32_t rys_gguf_init_from_file(const char * path, gguf_init_params params, gguf_context ** out, rys_error * err) {
    return guard(err, [&] { *out = gguf_init_from_file(path, params); });
}
