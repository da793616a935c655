// SPDX-License-Identifier: Apache-2.0
//
// bench_shim.cc: Google Benchmark behind a C interface, the one C++ file of the project.
//
// Three habits of the library are switched off here:
//   - It takes defaults from BENCHMARK_* environment variables (when it is loaded) and an output file from
//     --benchmark_out. Here every flag is set explicitly at initialisation, and the output file to none:
//     several workers run one after the other, and the parent process merges their reports.
//   - It calls a benchmark with growing iteration counts until it takes long enough. Here the iteration count
//     is 1, so every call is a sample, except the warm-up calls, which come first and are dropped.
//   - It appends "/iterations:1/repeats:15/manual_time" to the name. The number of repeats depends on the
//     speed of the machine. The reporter below removes these parts, so that two runs have the same names.

#include "bench_shim.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace
{

class Reporter : public benchmark::BenchmarkReporter
{
  public:
    Reporter()
    {
        json_.SetOutputStream(&text_);
        json_.SetErrorStream(&text_);
    }
    bool ReportContext(const Context &context) override
    {
        return json_.ReportContext(context);
    }
    void ReportRuns(const std::vector<Run> &runs) override
    {
        std::vector<Run> named(runs);
        for (Run &run : named) {
            run.run_name.iterations.clear();
            run.run_name.repetitions.clear();
            run.run_name.time_type.clear();
        }
        json_.ReportRuns(named);
    }
    void Finalize() override
    {
        json_.Finalize();
    }
    std::string text() const
    {
        return text_.str();
    }

  private:
    benchmark::JSONReporter json_;
    std::ostringstream text_;
};

void initialise(const char *const *flags)
{
    static bool done = false;
    if (done)
        return;
    done = true;
    // Static, because the library keeps the pointer to the program's name.
    static std::vector<std::string> text = {"kvgauge",
                                            "--benchmark_out=",
                                            "--benchmark_filter=.",
                                            "--benchmark_list_tests=false",
                                            "--benchmark_repetitions=1",
                                            "--benchmark_min_warmup_time=0",
                                            "--benchmark_enable_random_interleaving=false",
                                            "--benchmark_report_aggregates_only=false",
                                            "--benchmark_perf_counters=",
                                            "--benchmark_time_unit=ns"};
    for (int64_t i = 0; flags != nullptr && flags[i] != nullptr; i++)
        if (std::strncmp(flags[i], "--benchmark_out", std::strlen("--benchmark_out")) != 0)
            text.emplace_back(flags[i]);
    std::vector<char *> argv;
    for (std::string &t : text)
        argv.push_back(&t[0]);
    argv.push_back(nullptr);
    int argc = static_cast<int>(text.size());
    benchmark::Initialize(&argc, argv.data());
}

int run(const kvg_bench *bench, const char *const *flags, double *seconds, int64_t *n, char **report)
{
    initialise(flags);
    std::vector<double> taken;
    bool failed = false;
    auto function = [&](benchmark::State &state) {
        for (auto _ : state) {
            state.PauseTiming();
            if (bench->before != nullptr)
                bench->before(bench->context);
            state.ResumeTiming();
            double t = failed ? -1.0 : bench->sample(bench->context);
            state.PauseTiming();
            if (t < 0) {
                failed = true;
                state.SkipWithError("the call failed");
                break;
            }
            if (bench->after != nullptr)
                bench->after(bench->context);
            state.SetIterationTime(t);
            taken.push_back(t);
            state.ResumeTiming();
        }
    };
    benchmark::ClearRegisteredBenchmarks();
    benchmark::RegisterBenchmark(bench->name, function)
        ->Iterations(1)
        ->Repetitions(static_cast<int>(bench->samples))
        ->MeasureProcessCPUTime()
        ->UseManualTime();
    Reporter reporter;
    size_t count = benchmark::RunSpecifiedBenchmarks(&reporter, ".");
    benchmark::ClearRegisteredBenchmarks();
    if (failed || count != 1 || static_cast<int64_t>(taken.size()) < bench->samples)
        return -1;
    // Warm-up calls (--benchmark_min_warmup_time) come first and are not samples.
    size_t first = taken.size() - static_cast<size_t>(bench->samples);
    std::memcpy(seconds, taken.data() + first, static_cast<size_t>(bench->samples) * sizeof(double));
    *n = bench->samples;
    if (report != nullptr)
        *report = strdup(reporter.text().c_str());
    return 0;
}

} // namespace

extern "C" int kvg_bench_run(const kvg_bench *bench, const char *const *flags, double *seconds, int64_t *n,
                             char **report)
{
    *n = 0;
    if (report != nullptr)
        *report = nullptr;
    try {
        return run(bench, flags, seconds, n, report);
    } catch (...) {
        return -1;
    }
}
