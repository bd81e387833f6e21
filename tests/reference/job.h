#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using json = nlohmann::json;

struct job_result {
    json header;                  // one line
    std::vector<std::string> out; // bytes of each step, announced by "sizes" of the header
};

// Runs a job; never throws.
//
//   {"model": PATH, "n_ctx": .., "n_batch": .., "n_ubatch": .., "n_seq_max": .., "n_threads": .., "kv_unified": ..,
//    "flash_attn": .., "flash_auto": .., "offload_kqv": .., "n_rs_seq": .., "type_k": "f16", "type_v": "f16",
//    "swa_full": .., "loras": [[PATH, SCALE]], "control": [..], "verbose": .., "steps": [..]}
//
// Header of the result: "error" (null or a text), "sizes" and "rets" of the steps, "log" of the context and of the
// steps, "model_log" of the loading (as verbose as the first job with the model): lists of [level, text].
job_result job_run(const json & job);
