// C entry points over the llama.cpp calls that can throw or assert.
//
// Every function returns a status; what it computes goes through the pointers in front of `err`.
// On RYS_OK those pointers hold what the llama.cpp function of the same name returned.
// On any other status `err->text` says why, and nothing else was written.
#pragma once

#include "llama.h"
#include "gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rys_status {
    RYS_OK        = 0,
    RYS_EXCEPTION = 1, // a C++ exception was caught
    RYS_ASSERT    = 2, // a GGML_ASSERT failed on the calling thread
};

// text of a caught exception: UTF-8 as llama.cpp wrote it, cut to fit, always NUL-terminated
struct rys_error {
    char text[1024];
};

int32_t rys_backend_init(struct rys_error * err);

// `out` is NULL when llama.cpp refused the file: its log has the reason
int32_t rys_model_load_from_file(const char * path, struct llama_model_params params,
        struct llama_model ** out, struct rys_error * err);
int32_t rys_model_init_from_user(struct gguf_context * metadata, llama_model_set_tensor_data_t set_tensor_data,
        void * userdata, struct llama_model_params params, struct llama_model ** out, struct rys_error * err);
int32_t rys_init_from_model(struct llama_model * model, struct llama_context_params params,
        struct llama_context ** out, struct rys_error * err);
int32_t rys_model_free(struct llama_model * model, struct rys_error * err);
int32_t rys_free(struct llama_context * ctx, struct rys_error * err);

// a failed assertion inside these two still ends the process: they compute on several threads,
// and an exception cannot leave a parallel region
int32_t rys_decode(struct llama_context * ctx, struct llama_batch batch, int32_t * ret, struct rys_error * err);
int32_t rys_encode(struct llama_context * ctx, struct llama_batch batch, int32_t * ret, struct rys_error * err);
int32_t rys_synchronize(struct llama_context * ctx, struct rys_error * err);

int32_t rys_get_logits_ith    (struct llama_context * ctx, int32_t i, float ** out, struct rys_error * err);
int32_t rys_get_embeddings_ith(struct llama_context * ctx, int32_t i, float ** out, struct rys_error * err);
int32_t rys_get_embeddings_seq(struct llama_context * ctx, llama_seq_id seq_id, float ** out, struct rys_error * err);

int32_t rys_memory_clear   (llama_memory_t mem, bool data, struct rys_error * err);
int32_t rys_memory_seq_rm  (llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
        bool * ret, struct rys_error * err);
int32_t rys_memory_seq_cp  (llama_memory_t mem, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1,
        struct rys_error * err);
int32_t rys_memory_seq_keep(llama_memory_t mem, llama_seq_id seq_id, struct rys_error * err);
int32_t rys_memory_seq_add (llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, llama_pos delta,
        struct rys_error * err);
int32_t rys_memory_seq_div (llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1, int32_t d,
        struct rys_error * err);
int32_t rys_memory_seq_pos_min(llama_memory_t mem, llama_seq_id seq_id, llama_pos * ret, struct rys_error * err);
int32_t rys_memory_seq_pos_max(llama_memory_t mem, llama_seq_id seq_id, llama_pos * ret, struct rys_error * err);

int32_t rys_state_get_size(struct llama_context * ctx, size_t * ret, struct rys_error * err);
int32_t rys_state_get_data(struct llama_context * ctx, uint8_t * dst, size_t size,
        size_t * ret, struct rys_error * err);
int32_t rys_state_set_data(struct llama_context * ctx, const uint8_t * src, size_t size,
        size_t * ret, struct rys_error * err);
int32_t rys_state_save_file(struct llama_context * ctx, const char * path, const llama_token * tokens,
        size_t n_tokens, bool * ret, struct rys_error * err);
int32_t rys_state_load_file(struct llama_context * ctx, const char * path, llama_token * tokens, size_t capacity,
        size_t * n_tokens, bool * ret, struct rys_error * err);
int32_t rys_state_seq_get_size(struct llama_context * ctx, llama_seq_id seq_id, size_t * ret, struct rys_error * err);
int32_t rys_state_seq_get_data(struct llama_context * ctx, uint8_t * dst, size_t size, llama_seq_id seq_id,
        size_t * ret, struct rys_error * err);
int32_t rys_state_seq_set_data(struct llama_context * ctx, const uint8_t * src, size_t size, llama_seq_id seq_id,
        size_t * ret, struct rys_error * err);
int32_t rys_state_seq_save_file(struct llama_context * ctx, const char * path, llama_seq_id seq_id,
        const llama_token * tokens, size_t n_tokens, size_t * ret, struct rys_error * err);
int32_t rys_state_seq_load_file(struct llama_context * ctx, const char * path, llama_seq_id seq_id,
        llama_token * tokens, size_t capacity, size_t * n_tokens, size_t * ret, struct rys_error * err);

int32_t rys_tokenize(const struct llama_vocab * vocab, const char * text, int32_t text_len, llama_token * tokens,
        int32_t capacity, bool add_special, bool parse_special, int32_t * ret, struct rys_error * err);
int32_t rys_token_to_piece(const struct llama_vocab * vocab, llama_token token, char * buf, int32_t length,
        bool special, int32_t * ret, struct rys_error * err);
int32_t rys_detokenize(const struct llama_vocab * vocab, const llama_token * tokens, int32_t n_tokens, char * text,
        int32_t capacity, bool remove_special, bool unparse_special, int32_t * ret, struct rys_error * err);
int32_t rys_chat_apply_template(const char * tmpl, const struct llama_chat_message * chat, size_t n_msg,
        bool add_assistant, char * buf, int32_t length, int32_t * ret, struct rys_error * err);

int32_t rys_adapter_lora_init(struct llama_model * model, const char * path, struct llama_adapter_lora ** out,
        struct rys_error * err);
int32_t rys_adapter_lora_free(struct llama_adapter_lora * adapter, struct rys_error * err);
int32_t rys_set_adapters_lora(struct llama_context * ctx, struct llama_adapter_lora ** adapters, size_t n_adapters,
        float * scales, int32_t * ret, struct rys_error * err);
int32_t rys_set_adapter_cvec(struct llama_context * ctx, const float * data, size_t len, int32_t n_embd,
        int32_t il_start, int32_t il_end, int32_t * ret, struct rys_error * err);

int32_t rys_sampler_sample(struct llama_sampler * smpl, struct llama_context * ctx, int32_t idx,
        llama_token * ret, struct rys_error * err);
int32_t rys_sampler_accept(struct llama_sampler * smpl, llama_token token, struct rys_error * err);
int32_t rys_sampler_reset (struct llama_sampler * smpl, struct rys_error * err);
int32_t rys_sampler_init_grammar(const struct llama_vocab * vocab, const char * grammar, const char * root,
        struct llama_sampler ** out, struct rys_error * err);

int32_t rys_gguf_init_from_file(const char * path, struct gguf_init_params params, struct gguf_context ** out,
        struct rys_error * err);

#ifdef RYS_SERVER
// The spec parser of upstream's tools (common/repeat-layers.h).
// Writes at most `cap` blocks in ascending order and the number of blocks to `n_out`.
// Returns its error kind, 0 for none; `err_pos` is then the byte offset of the error.
int32_t rys_parse_spec(const char * spec, size_t len, struct llama_layer_block * out, size_t cap,
        size_t * n_out, size_t * err_pos);

enum rys_tool {
    RYS_TOOL_SERVER     = 0,
    RYS_TOOL_CHAT       = 1, // llama-cli
    RYS_TOOL_COMPLETION = 2,
};

// what a tool is about to run, after its config file, environment and command line; alive during the call
struct rys_tool_params {
    const char * spec;         // repeats as given, "" for none
    const char * model;        // path, "" if there is none or it is not known yet
    const char * model_draft;  // path, "" if there is none or it is not known yet
    bool         remote;       // the model is downloaded, its file may not exist yet
    bool         split_tensor; // --split-mode tensor
};

// checks around a tool: each returns 0 to go on or the exit code to end the process with
struct rys_tool_checks {
    void * data;
    // a spec that the tool's parser refused; not NUL-terminated
    int32_t (*refused)(void * data, const char * spec, size_t len);
    // before a model is read; a server that downloads its model calls it again afterwards
    int32_t (*params)(void * data, const struct rys_tool_params * params);
    const char * help; // printed after the tool's own help
};

// Runs the `main` of one of upstream's tools and returns its exit code. It may also end the process, as for --help.
// `argv` has `argc` strings and a NULL. Once per process, after rys_backend_init and a log callback.
int32_t rys_tool_main(int32_t tool, int32_t argc, char ** argv, const struct rys_tool_checks * checks);
#endif

#ifdef __cplusplus
}
#endif
