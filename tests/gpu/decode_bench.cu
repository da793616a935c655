/* SPDX-License-Identifier: Apache-2.0
 *
 * decode_bench.cu: the CUDA kernels without the harness. Checks them against references and times them
 * against the gather roof of the same case. Exit code: 0 all checks passed, 1 a check failed, 3 CUDA failed,
 * 4 usage.
 *
 *   decode_bench check            references and boundary shapes
 *   decode_bench quick            a few small cases (for compute-sanitizer)
 *   decode_bench bench            the target shapes, with the planner's choices
 *   decode_bench sweep            the target shapes, with forced choices
 *   decode_bench one KIND B LEN   one case once (for a profiler)
 *   decode_bench store            store throughput
 */
#include "harness/device/cuda/launch.h"
#include "harness/device/device.h"
#include "bench_case.cuh"

#include <functional>
#include <string>

static arena mem;
static void *sink, *flush_buffer;
static const int64_t flush_bytes = (int64_t)512 << 20;
static int multiprocessors;
static int failures;

/* Median GPU time of fn in ms, with a cold L2. 512 MB are read before each run, outside the timed region.
 * That read takes longer than a launch, so the host is always ahead of the GPU. */
static double time_ms(const std::function<void()> &fn, int runs, double *best = NULL)
{
    std::vector<cudaEvent_t> ev(2 * (runs + 2));
    for (auto &e : ev)
        CU(cudaEventCreate(&e));
    for (int i = 0; i < runs + 2; i++) {
        CU(kvg_launch_read(flush_buffer, flush_bytes, multiprocessors * 8, sink, 0));
        CU(cudaEventRecord(ev[2 * i]));
        fn();
        CU(cudaEventRecord(ev[2 * i + 1]));
    }
    CU(cudaDeviceSynchronize());
    std::vector<float> t;
    for (int i = 2; i < runs + 2; i++) {
        float ms;
        CU(cudaEventElapsedTime(&ms, ev[2 * i], ev[2 * i + 1]));
        t.push_back(ms);
    }
    for (auto &e : ev)
        CU(cudaEventDestroy(e));
    std::sort(t.begin(), t.end());
    if (best)
        *best = t[0];
    return t[t.size() / 2];
}

#include "store_case.cuh"

/* ------------------------------------------------------------------ checks */

static double decode_code(int c, int e5m2)
{
    const int ebits = e5m2 ? 5 : 4, mbits = 7 - ebits, bias = e5m2 ? 15 : 7;
    const int e = c >> mbits & ((1 << ebits) - 1), m = c & ((1 << mbits) - 1);
    const double v = e ? ldexp(1 + ldexp(m, -mbits), e - bias) : ldexp(m, 1 - bias - mbits);
    return c & 0x80 ? -v : v;
}

static double host_value(const std::vector<uint8_t> &d, int64_t i, kvg_dtype t)
{
    if (t != KVG_BF16)
        return decode_code(d[i], t == KVG_E5M2);
    uint32_t w = (uint32_t)(d[2 * i] | d[2 * i + 1] << 8) << 16;
    float x;
    memcpy(&x, &w, 4);
    return x;
}

/* Compares the naive kernel with double precision on the host. */
static void check_naive(const spec &s, uint64_t seed)
{
    bench_case c;
    make_case(mem, s, c, seed, 1 << 20);
    run_naive(c);
    const int64_t es = s.kv == KVG_BF16 ? 2 : 1, rows = c.p.total_q * s.q_heads;
    std::vector<uint8_t> k(c.elements * es), v(c.elements * es),
        q(rows * s.head_dim * (s.path == KVG_PATH_FP8 ? 1 : 2));
    std::vector<float> ref(rows * s.head_dim), lse(rows);
    CU(cudaMemcpy(k.data(), c.k, k.size(), cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(v.data(), c.v, v.size(), cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(q.data(), c.a.q, q.size(), cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(ref.data(), c.ref, 4 * ref.size(), cudaMemcpyDeviceToHost));
    CU(cudaMemcpy(lse.data(), c.ref_lse, 4 * lse.size(), cudaMemcpyDeviceToHost));
    const int64_t ns = s.per_head ? s.kv_heads : 1;
    double num = 0, den = 0, worst = 0;
    int bad = 0;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t qi = 0; qi < c.cu[b + 1] - c.cu[b]; qi++)
            for (int64_t h = 0; h < s.q_heads; h++) {
                const int64_t g = h / (s.q_heads / s.kv_heads), sc = s.per_head ? g : 0, n = c.lens[b];
                const int64_t last = s.causal ? n - (c.cu[b + 1] - c.cu[b]) + qi : n - 1;
                const int64_t first = s.window ? std::max<int64_t>(0, last - s.window + 1) : 0;
                const double ks = s.kv == KVG_BF16 ? 1 : c.scale_h[ns + sc],
                             vs = s.kv == KVG_BF16 ? 1 : c.scale_h[2 * ns + sc];
                const double qs = s.path == KVG_PATH_FP8 ? c.scale_h[sc] : 1;
                std::vector<double> logit, o(s.head_dim, 0.0);
                const double sink = s.sinks ? (double)c.sinks_h[h] : -INFINITY;
                double top = sink, sum = 0;
                const auto at = [&](int64_t j) {
                    return c.table[b * c.table_stride + j / s.block_size] * c.a.k_cache.stride_block +
                           j % s.block_size * c.a.k_cache.stride_slot + g * c.a.k_cache.stride_head;
                };
                const int64_t row = (c.cu[b] + qi) * s.q_heads + h;
                for (int64_t j = first; j <= last; j++) {
                    double x = 0;
                    for (int64_t d = 0; d < s.head_dim; d++)
                        x +=
                            host_value(q, row * s.head_dim + d, c.p.q_dtype) * host_value(k, at(j) + d, s.kv);
                    x *= qs * ks * (double)c.a.softmax_scale;
                    if (s.cap > 0)
                        x = s.cap * tanh(x / s.cap);
                    logit.push_back(x);
                    top = std::max(top, x);
                }
                for (int64_t j = first; j <= last; j++) {
                    const double w = exp(logit[j - first] - top);
                    sum += w;
                    for (int64_t d = 0; d < s.head_dim; d++)
                        o[d] += w * vs * host_value(v, at(j) + d, s.kv);
                }
                if (s.sinks)
                    sum += exp(sink - top);
                for (int64_t d = 0; d < s.head_dim; d++) {
                    const double e = sum > 0 ? o[d] / sum : 0, x = ref[row * s.head_dim + d];
                    num += (x - e) * (x - e), den += e * e;
                    bad += !std::isfinite(x);
                }
                if (sum > 0)
                    worst = std::max(worst, fabs(lse[row] - (top + log(sum))));
                else
                    bad += lse[row] != -INFINITY;
            }
    const double rel = den > 0 ? sqrt(num / den) : 0;
    const int ok = rel < 2e-5 && worst < 2e-5 && !bad;
    failures += !ok;
    printf("naive vs double: B%lld len %lld heads %lld/%lld d%lld bs%lld kv%d path%d q%lld: rel %.2e lse "
           "%.2e bad %d %s\n",
           (long long)s.batch, (long long)s.len, (long long)s.q_heads, (long long)s.kv_heads,
           (long long)s.head_dim, (long long)s.block_size, s.kv, s.path, (long long)s.q_len, rel, worst, bad,
           ok ? "ok" : "FAILED");
}

static const kvg_kernel &kernel_of(const spec &s)
{
    return s.path == KVG_PATH_FP8 ? kvg_cuda_fp8_sm90 : kvg_cuda_dequant_sm90;
}

static int check_case(const spec &s, uint64_t seed, const kvg_sm90_tuning *tune, const char *note, bool loud)
{
    bench_case c;
    char why[200];
    kvg_sm90_plan plan;
    make_case(mem, s, c, seed, 4 << 20);
    if (kvg_sm90_plan_here(&c.p, tune, &plan, why, sizeof why)) {
        printf("refused: %s\n", why);
        return failures++;
    }
    if (!kernel_of(s).supports(&c.p, why, sizeof why)) {
        printf("not supported: %s\n", why);
        return failures++;
    }
    make_case(mem, s, c, seed, plan.workspace_bytes);
    run_naive(c);
    verdict v[2];
    std::vector<uint16_t> first, second;
    for (int run = 0; run < 2; run++) {
        const int64_t n = c.p.total_q * s.q_heads * s.head_dim;
        CU(cudaMemset(c.out, 0xff, 2 * n));
        CU(cudaMemset(c.lse, 0x55, 4 * c.p.total_q * s.q_heads));
        CU(cudaMemset(c.ws, 0xff, c.ws_bytes));
        KVG(kvg_sm90_attention(&c.a, tune, 0));
        CU(cudaDeviceSynchronize());
        v[run] = compare(c);
        std::vector<uint16_t> &o = run ? second : first;
        o.resize(n);
        CU(cudaMemcpy(o.data(), c.out, 2 * n, cudaMemcpyDeviceToHost));
    }
    /* The rounding of P to e4m3 averages out over the keys; short sequences show it in full. With one key
     * the output is V times its scale; its few values may all round to bf16 in the same direction, by 2^-8
     * at worst. */
    const bool far = s.len >= 8192 && !s.ragged;
    const double limit = s.path == KVG_PATH_FP8 ? (s.nonneg ? (far ? 3e-3 : 2e-2) : 3.2e-2)
                         : s.len == 1           ? 0x1p-8
                                                : 2.4e-3;
    const int ok = !v[0].bad && v[0].rel <= limit && v[0].lse < 2e-4 && first == second &&
                   (!far || !s.nonneg || fabs(v[0].gain - 1) < 2e-3);
    failures += !ok;
    if (!ok || loud)
        printf("%s %s kv%d B%lld len %lld heads %lld/%lld d%lld bs%lld %s q%lld win %lld cap %g causal %d ph "
               "%d [hb %d rb %d "
               "ks %d split %lld rounds %d st %d rect %d dyn %d dir %d lean %d]: rel %.2e gain %.5f lse %.1e "
               "bad %d "
               "same %d %s\n",
               note, s.path == KVG_PATH_FP8 ? "fp8" : "dequant", s.kv, (long long)s.batch, (long long)s.len,
               (long long)s.q_heads, (long long)s.kv_heads, (long long)s.head_dim, (long long)s.block_size,
               s.layout ? "HND" : "NHD", (long long)s.q_len, (long long)s.window, s.cap, s.causal, s.per_head,
               plan.heads, plan.row_blocks, plan.splits_per_block, (long long)plan.split_tokens, plan.rounds,
               plan.stages, plan.rectangular, plan.dynamic, plan.direct, plan.lean, v[0].rel, v[0].gain,
               v[0].lse, v[0].bad, first == second, ok ? "ok" : "FAILED");
    return ok;
}

static spec base_spec(kvg_path path, kvg_dtype kv, int64_t batch, int64_t len)
{
    spec s = {batch, len, 32, 8, 128, 16, path, kv, KVG_NHD, 0, 0, 0, 1, 0, 0.f, 1, 0};
    return s;
}

static const struct {
    kvg_path path;
    kvg_dtype kv;
} kinds[] = {{KVG_PATH_DEQUANT, KVG_BF16},
             {KVG_PATH_DEQUANT, KVG_E4M3},
             {KVG_PATH_DEQUANT, KVG_E5M2},
             {KVG_PATH_FP8, KVG_E4M3}};

/* A few small cases of every kind, for compute-sanitizer. */
static void check_quick()
{
    uint64_t seed = 3;
    for (int kv : {KVG_BF16, KVG_E4M3, KVG_E5M2})
        for (int64_t d : {64, 256})
            for (int hb : {1, 8}) {
                spec s = base_spec(KVG_PATH_DEQUANT, (kvg_dtype)kv, 3, 300);
                s.ragged = 1, s.head_dim = d;
                kvg_sm90_tuning t = {hb, 32, 0, 0, hb == 8 ? 3 : 1, 50, 0, 0, 0};
                check_case(s, seed++, &t, "quick", false);
            }
    for (int kv : {KVG_BF16, KVG_E4M3})
        for (int64_t len : {17, 700}) { /* the lean kernel: one chunk a sequence, and several */
            spec s = base_spec(KVG_PATH_DEQUANT, (kvg_dtype)kv, 2, len);
            kvg_sm90_tuning t = {1, 16, 0, 2, 1, 0, 0, 0, 0};
            check_case(s, seed++, &t, "quick", true);
        }
    spec s = base_spec(KVG_PATH_FP8, KVG_E4M3, 3, 300);
    s.ragged = 1, s.window = 50, s.cap = 4, s.q_len = 3;
    check_case(s, seed++, NULL, "quick", true);
    s.head_dim = 256;
    check_case(s, seed++, NULL, "quick", true);
    s.sinks = 1;
    check_case(s, seed++, NULL, "quick", true);
    for (auto &k : kinds) /* 16 query rows a warp: full and partly filled */
        for (int64_t q : {3, 4, 7}) {
            spec r = base_spec(k.path, k.kv, 2, 200);
            r.ragged = 1, r.q_len = q;
            check_case(r, seed++, NULL, "quick", false);
        }
}

/* Checks the lean kernel over boundary shapes, and the large kernel over the same. */
static void check_lean(kvg_path path, kvg_dtype kv, uint64_t seed)
{
    static const int heads[][2] = {{32, 8}, {8, 8}, {14, 2}, {8, 1}, {15, 5}, {40, 8}, {64, 8}};
    static const int64_t dims[] = {128, 64, 96}, sizes[] = {16, 8, 64, 24, 32};
    const int before = failures;
    int n = 0, lean = 0;
    for (int64_t len :
         {1, 15, 16, 17, 31, 33, 64, 100, 127, 129, 512, 1000, 1025, 2047, 4096, 8191, 8192, 30011})
        for (int64_t batch : {1, 2, 4, 8, 16}) {
            if (len * batch > 100000)
                continue;
            spec s = base_spec(path, kv, batch, len);
            const int h = n % 7;
            s.q_heads = heads[h][0], s.kv_heads = heads[h][1], s.head_dim = dims[n % 3];
            s.block_size = sizes[n % 5], s.layout = n / 2 & 1, s.per_head = n / 3 & 1;
            s.nonneg = n / 5 & 1, s.causal = n % 9 != 8;
            s.q_len = n % 4 == 3 && s.q_heads / s.kv_heads <= 4 && len > 1 ? 2 : 1;
            kvg_sm90_tuning t = {1, 0, 0, 2 + n / 3 % 3, 1, 0, n % 6 == 5 ? 2 : 0, 0, 0};
            if (n % 8 == 7 && len <= 8192) /* one slab a sequence, lengths differ */
                s.ragged = 1, t.split_tokens = (len + 127) / 128 * 16;
            bench_case c;
            char why[200];
            kvg_sm90_plan plan;
            make_case(mem, s, c, seed, 4 << 20);
            if (!kvg_sm90_plan_here(&c.p, &t, &plan, why, sizeof why))
                lean += plan.lean;
            check_case(s, seed++, &t, "lean", false), n++;
        }
    if (lean < n / 2) {
        printf("the lean kernel took only %d of %d cases\n", lean, n);
        failures++;
    }
    printf("short work: %d failures of %d cases, %d by the lean kernel\n", failures - before, n, lean);
}

/* Checks row blocks and column blocks: every number of query rows at the edges of 8 and 16 columns. */
static void check_rows(kvg_path path, kvg_dtype kv, uint64_t seed)
{
    static const int heads[][2] = {{32, 8}, {16, 1}, {9, 1}, {14, 2}, {48, 8}, {40, 4}, {64, 4}};
    const int before = failures;
    int n = 0;
    for (auto &h : heads)
        for (int64_t q : {1, 2, 3, 4, 5, 8, 16})
            for (int64_t d : {64, 96, 128, 256}) {
                const int group = h[0] / h[1];
                if (group * q > 64)
                    continue;
                spec s = base_spec(path, kv, 3, n % 3 == 2 ? 6000 : 700);
                s.ragged = n % 2, s.q_heads = h[0], s.kv_heads = h[1], s.head_dim = d, s.q_len = q;
                s.block_size = n % 5 ? 16 : 8, s.layout = n / 2 & 1, s.per_head = n / 3 & 1;
                s.causal = n % 7 != 6, s.window = n % 5 == 4 ? 100 : 0, s.cap = n % 6 == 5 ? 5.f : 0.f;
                kvg_sm90_tuning t = {0, 0, 0, 0, n % 4 == 3 ? 3 : 0, 60, 0, 0, 0};
                check_case(s, seed++, &t, "rows", false), n++;
            }
    printf("query rows: %d failures of %d cases\n", failures - before, n);
}

static void check_all()
{
    check_store();
    int n = 0;
    for (auto &k : kinds) {
        spec s = base_spec(k.path, k.kv, 3, 150);
        s.ragged = 1, s.q_heads = 14, s.kv_heads = 2, s.per_head = 1, s.head_dim = 96;
        check_naive(s, 5);
        s.window = 40, s.cap = 3, s.q_len = 3, s.layout = KVG_HND, s.block_size = 24, s.head_dim = 64;
        check_naive(s, 6);
        s.sinks = 1;
        check_naive(s, 7);
        s.q_len = 1, s.batch = 16, s.len = 33; /* some sequences have no key */
        check_naive(s, 8);
    }
    uint64_t seed = 10;
    for (auto &k : kinds) {
        const int before = failures;
        spec b = base_spec(k.path, k.kv, 4, 700);
        b.ragged = 1;
        check_case(b, seed++, NULL, "base", true);
        n++;
        check_lean(k.path, k.kv, 1000 + seed);
        check_rows(k.path, k.kv, 2000 + seed);
        for (int64_t d : {64, 96, 128, 192, 256})
            for (int64_t bs : {8, 16, 24, 32, 64, 128, 256})
                for (int lay = 0; lay < 2; lay++) {
                    spec s = b;
                    s.head_dim = d, s.block_size = bs, s.layout = lay, s.per_head = lay, s.nonneg = (n & 1);
                    check_case(s, seed++, NULL, "shape", false), n++;
                }
        const int heads[][2] = {{1, 1},  {2, 1},  {7, 1},   {16, 1}, {8, 8},  {14, 2}, {28, 4},  {32, 2},
                                {48, 8}, {15, 5}, {24, 12}, {64, 8}, {40, 8}, {9, 3},  {32, 32}, {71, 71}};
        for (auto &h : heads)
            for (int64_t d : {64, 128, 256}) {
                spec s = b;
                s.q_heads = h[0], s.kv_heads = h[1], s.head_dim = d, s.per_head = 1;
                check_case(s, seed++, NULL, "heads", false), n++;
            }
        for (int64_t w : {1, 5, 16, 100, 128, 1000})
            for (float cap : {0.f, 5.f})
                for (int64_t q : {1, 2, 5, 16}) {
                    spec s = b;
                    s.window = w, s.cap = cap, s.q_len = q, s.batch = 5, s.len = 900;
                    check_case(s, seed++, NULL, "window", false), n++;
                }
        for (int64_t len : {3, 100, 900, 5000})
            for (int64_t w : {0, 40})
                for (int64_t q : {1, 4}) {
                    spec s = b;
                    s.sinks = 1, s.len = len, s.window = w, s.q_len = q, s.q_heads = 14, s.kv_heads = 2;
                    s.ragged = len > 3;
                    check_case(s, seed++, NULL, "sinks", false), n++;
                    s.q_heads = 32, s.kv_heads = 8, s.batch = 1, s.ragged = 0;
                    check_case(s, seed++, NULL, "sinks", false), n++;
                }
        for (int64_t q : {2, 3, 4, 8, 16})
            for (int causal = 0; causal < 2; causal++) {
                spec s = b;
                s.q_len = q, s.causal = causal;
                check_case(s, seed++, NULL, "append", false), n++;
                s.q_heads = 8, s.kv_heads = 2, s.len = 3000;
                check_case(s, seed++, NULL, "append", false), n++;
            }
        for (int hb : {1, 2, 4, 8})
            for (int64_t split : {16, 48, 64, 160, 512, 4096})
                for (int dyn = 1; dyn < 3; dyn++)
                    for (int rag = 0; rag < 2; rag++) {
                        spec s = b;
                        s.len = 2100, s.ragged = rag, s.nonneg = 1;
                        kvg_sm90_tuning t = {hb, split, dyn, 0, 0, 0, 0, 0, 0};
                        check_case(s, seed++, &t, "split", false), n++;
                    }
        for (int64_t len : {1024, 1025, 2047, 4096, 9000})
            for (int64_t batch : {1, 2, 5})
                for (int64_t d : {64, 128, 192, 256})
                    for (int64_t q : {1, 3}) {
                        spec s = b;
                        s.ragged = 0, s.len = len, s.batch = batch, s.head_dim = d, s.q_len = q,
                        s.cap = q == 3 ? 4.f : 0.f;
                        s.per_head = 1;
                        check_case(s, seed++, NULL, "short", false), n++;
                    }
        for (int rounds : {2, 3, 5, 10})
            for (int ratio : {30, 60, 90})
                for (int rag = 0; rag < 2; rag++) {
                    spec s = b;
                    s.len = 30000, s.ragged = rag;
                    kvg_sm90_tuning t = {8, 32, 0, 0, rounds, ratio, 0, 0, 0};
                    check_case(s, seed++, &t, "rounds", false), n++;
                }
        spec s = b;
        s.batch = 150, s.len = 300;
        check_case(s, seed++, NULL, "batch", true), n++;
        s.batch = 1200;
        check_case(s, seed++, NULL, "batch", true), n++;
        s.ragged = 0, s.batch = 1, s.len = 8192;
        check_case(s, seed++, NULL, "long", true), n++;
        s.len = 131072, s.nonneg = 1;
        check_case(s, seed++, NULL, "long", true), n++;
        s.len = 1 << 20, s.nonneg = 0;
        check_case(s, seed++, NULL, "long", true), n++;
        s.nonneg = 1;
        check_case(s, seed++, NULL, "long", true), n++;
        s.batch = 8, s.len = 32768;
        check_case(s, seed++, NULL, "long", true), n++;
        printf("path %d kv %d: %d failures of %d cases so far\n", k.path, k.kv, failures - before, n);
    }
}

/* ------------------------------------------------------------------ measurements */

/* Time of the harness's gather roof for the case, in ms: the same keys, only read, cold. */
static double gather_ms(kvg_device *device, const bench_case &c)
{
    const std::vector<int32_t> first_key(c.lens.size(), 0); /* the targets have no window */
    const kvg_device_gather gather = {&c.a, c.lens.data(), first_key.data()};
    const double rate = device->ops->gather_roof(device, &gather);
    if (!(rate > 0)) {
        fprintf(stderr, "gather roof: %s\n", device->error);
        exit(3);
    }
    return c.kv_bytes / rate * 1e3;
}

struct target {
    const char *name;
    kvg_path path;
    kvg_dtype kv;
    int64_t batch, len;
};
static const target targets[] = {
    {"fp8", KVG_PATH_FP8, KVG_E4M3, 64, 32768},      {"fp8", KVG_PATH_FP8, KVG_E4M3, 64, 131072},
    {"fp8", KVG_PATH_FP8, KVG_E4M3, 8, 32768},       {"fp8", KVG_PATH_FP8, KVG_E4M3, 1, 131072},
    {"fp8", KVG_PATH_FP8, KVG_E4M3, 1, 8192},        {"fp8", KVG_PATH_FP8, KVG_E4M3, 64, 8192},
    {"fp8", KVG_PATH_FP8, KVG_E4M3, 8, 8192},        {"e4m3", KVG_PATH_DEQUANT, KVG_E4M3, 64, 32768},
    {"e4m3", KVG_PATH_DEQUANT, KVG_E4M3, 8, 32768},  {"e5m2", KVG_PATH_DEQUANT, KVG_E5M2, 64, 32768},
    {"bf16", KVG_PATH_DEQUANT, KVG_BF16, 64, 32768}, {"bf16", KVG_PATH_DEQUANT, KVG_BF16, 8, 32768},
    {"e4m3", KVG_PATH_DEQUANT, KVG_E4M3, 1, 8192},
};

static int runs_for(int64_t bytes)
{
    return bytes > (int64_t)4 << 30 ? 9 : bytes > (int64_t)1 << 28 ? 15 : 31;
}

static void bench_all(bool sweep)
{
    char cannot[256];
    kvg_device *device = kvg_cuda_open(0, cannot, sizeof cannot);
    if (!device) {
        fprintf(stderr, "gather roof: %s\n", cannot);
        exit(3);
    }
    double t =
        time_ms([&] { CU(kvg_launch_read(mem.base, (int64_t)1 << 32, multiprocessors * 8, sink, 0)); }, 9);
    printf("linear read 4 GB: %.0f GB/s\n", (double)((int64_t)1 << 32) / t / 1e6);
    t = time_ms([&] { CU(kvg_launch_nothing(0)); }, 31);
    printf("empty kernel between events: %.2f us\n", t * 1e3);
    printf("%-5s %3s %6s | %9s %5s %5s | %9s %5s %6s | plan\n", "kind", "B", "len", "gather ms", "GB/s",
           "probe", "kernel ms", "GB/s", "% roof");
    for (const target &g : targets) {
        spec s = base_spec(g.path, g.kv, g.batch, g.len);
        bench_case c;
        char why[200];
        kvg_sm90_plan plan;
        make_case(mem, s, c, 42, 256 << 20);
        const int runs = runs_for(c.kv_bytes);
        const double gb = c.kv_bytes / 1e6;
        const double roof = gather_ms(device, c);
        const double probe = time_ms([&] { KVG(kvg_sm90_attention(&c.a, NULL, 1)); }, runs);
        struct entry {
            double ms;
            std::string text;
        };
        std::vector<entry> rows;
        const auto row = [&](const kvg_sm90_tuning *tune) {
            if (kvg_sm90_plan_here(&c.p, tune, &plan, why, sizeof why) || plan.workspace_bytes > c.ws_bytes)
                return;
            double best;
            const double ms = time_ms([&] { KVG(kvg_sm90_attention(&c.a, tune, 0)); }, runs, &best);
            char line[300];
            snprintf(line, sizeof line,
                     "%-5s %3lld %6lld | %9.5f %5.0f %5.0f | %9.5f %5.0f %6.1f | min %.5f hb %d ks %d "
                     "split %lld rounds %d "
                     "ratio %d dyn %d st %d prom %d%s",
                     g.name, (long long)g.batch, (long long)g.len, roof, gb / roof, gb / probe, ms, gb / ms,
                     100 * roof / ms, best, plan.heads, plan.splits_per_block, (long long)plan.split_tokens,
                     plan.rounds, tune ? tune->ratio : 0, plan.dynamic, plan.stages,
                     tune ? tune->promotion : 0, tune ? "" : " <- default");
            rows.push_back({ms, line});
        };
        row(NULL);
        if (sweep) {
            const int64_t per = g.len * g.batch / 132;
            kvg_sm90_tuning wide = {};
            wide.promotion = 256;
            row(&wide);
            for (int hb : {8, 4, 2, 1})
                for (int64_t split : {0, 64, 128, 256, 512, 2048})
                    for (int rounds : {1, 2, 3, 4})
                        for (int ratio : {50, 60, 70, 80})
                            for (int stages : {0, 3, 4, 5}) {
                                kvg_sm90_tuning tune = {hb, split, 0, stages, rounds, ratio, 0, 0, 0};
                                const bool large = per > 8000;
                                if ((rounds == 1) != (ratio == 50) ||
                                    (large && (hb < 4 || rounds < 3 || split < 128 || stages)) ||
                                    (!large && per > 1500 && rounds > 3) || (per < 100 && rounds > 1) ||
                                    split * 8 / hb > per || (rounds > 1 && (stages == 3 || stages == 5)))
                                    continue;
                                row(&tune);
                            }
        }
        std::stable_sort(rows.begin() + 1, rows.end(),
                         [](const entry &x, const entry &y) { return x.ms < y.ms; });
        for (size_t i = 0; i < rows.size() && i < 8; i++)
            printf("%s\n", rows[i].text.c_str());
        fflush(stdout);
        run_naive(c);
        KVG(kvg_sm90_attention(&c.a, NULL, 0));
        CU(cudaDeviceSynchronize());
        const verdict v = compare(c);
        printf("      error against FP32: rel %.2e gain %.5f lse %.1e bad %d\n", v.rel, v.gain, v.lse, v.bad);
        failures += v.bad > 0 || v.rel > (g.path == KVG_PATH_FP8 ? 3.2e-2 : 2.4e-3);
    }
    device->ops->close(device);
}

int main(int argc, char **argv)
{
    const std::string mode = argc > 1 ? argv[1] : "check";
    cudaDeviceProp prop;
    CU(cudaGetDeviceProperties(&prop, 0));
    multiprocessors = prop.multiProcessorCount;
    const bool small = mode == "quick";
    mem.size = small ? (int64_t)256 << 20 : (int64_t)(mode == "check" || mode == "one" ? 10 : 22) << 30;
    CU(cudaMalloc(&mem.base, mem.size));
    CU(cudaMalloc(&sink, 4096));
    CU(cudaMalloc(&flush_buffer, flush_bytes));
    if (!small) {
        fill_q<<<1024, 256>>>((__nv_bfloat16 *)flush_buffer, flush_bytes / 2, 1);
        fill_q<<<1024, 256>>>((__nv_bfloat16 *)mem.base, (int64_t)1 << 31, 2);
    }
    CU(cudaDeviceSynchronize());
    if (mode == "check") {
        check_all();
    } else if (mode == "quick") {
        check_quick();
    } else if (mode == "bench" || mode == "sweep") {
        bench_all(mode == "sweep");
    } else if (mode == "store") {
        bench_store();
    } else if (mode == "one" && argc == 5) {
        const std::string kind = argv[2];
        const spec s = base_spec(kind == "fp8" ? KVG_PATH_FP8 : KVG_PATH_DEQUANT,
                                 kind == "bf16"   ? KVG_BF16
                                 : kind == "e5m2" ? KVG_E5M2
                                                  : KVG_E4M3,
                                 atoll(argv[3]), atoll(argv[4]));
        bench_case c;
        make_case(mem, s, c, 42, 256 << 20);
        KVG(kvg_sm90_attention(&c.a, NULL, 0));
        CU(cudaDeviceSynchronize());
    } else {
        fprintf(stderr, "usage: decode_bench check | quick | bench | sweep | store | one KIND BATCH LEN\n");
        return 4;
    }
    printf("%d failures\n", failures);
    return failures ? 1 : 0;
}
