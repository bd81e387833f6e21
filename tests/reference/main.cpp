// Runs jobs on the llama.cpp that it is linked with.
//
// One JSON object a line on stdin; for each one a JSON object on a line of stdout, and after it the bytes of its steps.

#include "job.h"

#include "llama.h"

#include <cstdio>
#include <iostream>

int main() {
    llama_backend_init();

    std::string line;
    while (std::getline(std::cin, line)) {
        const json job = json::parse(line, nullptr, /*allow_exceptions =*/ false);

        const job_result res = job_run(job);
        const std::string header = res.header.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";

        bool ok = fwrite(header.data(), 1, header.size(), stdout) == header.size();
        for (const auto & bytes : res.out) {
            ok = ok && fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size();
        }
        if (!ok || fflush(stdout) != 0) {
            return 1;
        }
    }

    llama_backend_free();
    return 0;
}
