/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_core_check.cu: compares the FP8 matrix instructions of a GPU with reference/tensor_core.c, bit by
 * bit.
 *
 *   tensor_core_check [--tiles N] [--seed N]      default: 1,048,576 tiles per instruction and format pair
 *
 * A tile is C[64, 8] + A[64, 32] B[32, 8]. Each tile goes through wgmma.mma_async (sm_90a) and mma.sync, for
 * all four pairs of e4m3 and e5m2. Ten kinds of tiles take turns:
 *   0  codes of all sizes, accumulator zero
 *   1  codes of all sizes, any accumulator
 *   2  positive codes, large positive accumulator
 *   3  cancellation
 *   4  subnormals
 *   5  one huge product
 *   6  sparse codes, any bits in the accumulator
 *   7  zeros of both signs, any bits in the accumulator
 *   8  NaN and infinity
 *   9  accumulators near the end of FP32
 * Before that come tiles of small whole numbers, whose sums are exact in every model. They show that operands
 * and results are where this program expects them.
 *
 * Prints mismatches (the first few of each instruction in full), and one line per instruction and pair. Exit
 * code: 0 no mismatch; 1 a mismatch; 3 no GPU, or none that there is a model for; 4 usage.
 *
 * State: on an H200 (driver 580, CUDA 13.0; 30 November 2026) 262,144 tiles of each pair, a million in all
 * for each instruction: 0 of 134,217,728 elements of each pair differ, for wgmma and for mma.sync.
 *
 * Build: make gpu-check, which writes build/gpu/tensor_core_check. For another GPU, where only mma.sync is
 * checked:
 *   make gpu-check CUDA_FOR=sm_89 GPU_FOR_tensor_core_check=sm_89        (or sm_120a)
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

extern "C" {
#include "reference/tensor_core.h"
}

namespace
{

constexpr int M = 64, N = 8, K = 32, THREADS = 128;
constexpr int64_t BATCH = 16384; /* tiles on the GPU at a time */
constexpr int KINDS = 10, SHOWN = 5;

struct tile {
    uint8_t a[M][K]; /* row major */
    uint8_t b[N][K]; /* column major */
    float c[M][N];
};
struct result {
    float wgmma[M][N], mma[M][N];
};

/* ---------------------------------------------------------------- device */

enum pair { E4M3_E4M3, E4M3_E5M2, E5M2_E4M3, E5M2_E5M2, PAIRS };

#define MMA_SYNC(types)                                                                                      \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32." types ".f32 "                                      \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                           \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <int P> __device__ void mma_sync(float *d, const uint32_t *a, const uint32_t *b)
{
    if constexpr (P == E4M3_E4M3)
        MMA_SYNC("e4m3.e4m3");
    else if constexpr (P == E4M3_E5M2)
        MMA_SYNC("e4m3.e5m2");
    else if constexpr (P == E5M2_E4M3)
        MMA_SYNC("e5m2.e4m3");
    else
        MMA_SYNC("e5m2.e5m2");
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define WGMMA(types)                                                                                         \
    asm volatile("wgmma.fence.sync.aligned;\n"                                                               \
                 "wgmma.mma_async.sync.aligned.m64n8k32.f32." types " "                                      \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1;\n"                                        \
                 "wgmma.commit_group.sync.aligned;\n"                                                        \
                 "wgmma.wait_group.sync.aligned 0;\n"                                                        \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor)                               \
                 : "memory")

template <int P> __device__ void wgmma(float *d, const uint32_t *a, uint64_t descriptor)
{
    if constexpr (P == E4M3_E4M3)
        WGMMA("e4m3.e4m3");
    else if constexpr (P == E4M3_E5M2)
        WGMMA("e4m3.e5m2");
    else if constexpr (P == E5M2_E4M3)
        WGMMA("e5m2.e4m3");
    else
        WGMMA("e5m2.e5m2");
}

/* B in shared memory without swizzle, K contiguous. Core matrices are 8 columns x 16 bytes, 128 bytes
 * each. The second one in K follows the first (leading offset 128 bytes). There is one group of 8 columns. */
__device__ uint64_t b_descriptor(const void *shared)
{
    const uint64_t address = (uint64_t)__cvta_generic_to_shared(shared);
    return (address & 0x3ffff) >> 4 | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
}
#endif

__device__ uint32_t word(const uint8_t *p)
{
    return *reinterpret_cast<const uint32_t *>(p);
}

/* One block a tile. Thread 4 g + t of warp w holds
 *   A  rows 16 w + g and + 8, at k = 4 t .. 4 t + 3 and + 16
 *   B  column g, at the same k
 *   C  the same two rows, columns 2 t and 2 t + 1 */
template <int P> __global__ void __launch_bounds__(THREADS) run_tiles(const tile *tiles, result *results)
{
    const tile *in = tiles + blockIdx.x;
    result *out = results + blockIdx.x;
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int rows[2] = {16 * warp + g, 16 * warp + g + 8};
    const uint32_t a[4] = {word(&in->a[rows[0]][4 * t]), word(&in->a[rows[1]][4 * t]),
                           word(&in->a[rows[0]][16 + 4 * t]), word(&in->a[rows[1]][16 + 4 * t])};
    const uint32_t b[2] = {word(&in->b[g][4 * t]), word(&in->b[g][16 + 4 * t])};
    float d[4];
    for (int i = 0; i < 4; i++)
        d[i] = in->c[rows[i / 2]][2 * t + i % 2];
    mma_sync<P>(d, a, b);
    for (int i = 0; i < 4; i++)
        out->mma[rows[i / 2]][2 * t + i % 2] = d[i];
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(128) uint8_t shared_b[2][N][16];
    if (threadIdx.x < N * K / 4) {
        const int column = threadIdx.x / (K / 4), k = threadIdx.x % (K / 4) * 4;
        *reinterpret_cast<uint32_t *>(&shared_b[k / 16][column][k % 16]) = word(&in->b[column][k]);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    for (int i = 0; i < 4; i++)
        d[i] = in->c[rows[i / 2]][2 * t + i % 2];
    wgmma<P>(d, a, b_descriptor(shared_b));
    for (int i = 0; i < 4; i++)
        out->wgmma[rows[i / 2]][2 * t + i % 2] = d[i];
#endif
}

/* ---------------------------------------------------------------- drawing tiles */

struct draw {
    uint64_t state;
    uint64_t next()
    {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    uint32_t below(uint32_t n)
    {
        return (uint32_t)(next() >> 32) % n;
    }
};

uint8_t finite_code(draw &r, kvg_ref_format format)
{
    const uint32_t code = r.below(256);
    return (code & 0x7f) >= (format == KVG_REF_E4M3 ? 0x7fu : 0x7cu) ? 0 : (uint8_t)code;
}

uint8_t draw_code(draw &r, int kind, kvg_ref_format format, int i)
{
    const uint32_t one = format == KVG_REF_E4M3 ? 0x38 : 0x3c;
    switch (kind) {
    case 2: /* about 1, positive */
        return (uint8_t)(one - 8 + r.below(16));
    case 4: /* subnormal */
        return (uint8_t)(r.below(format == KVG_REF_E5M2 ? 4 : 8) | r.below(2) << 7);
    case 5: /* one large among small ones */
        return (uint8_t)(i == 3 ? one + 0x30 + r.below(4) : r.below(0x20));
    case 6: /* three of four are zero */
        return r.below(4) ? 0 : finite_code(r, format);
    case 7: /* zeros of both signs */
        return (uint8_t)(r.below(2) << 7);
    case 8: /* a few NaN and infinities: 0x7c .. 0x7f, which in e4m3 are numbers and NaN */
        return r.below(64) ? finite_code(r, format) : (uint8_t)(0x7c + r.below(4) | r.below(2) << 7);
    default:
        return finite_code(r, format);
    }
}

float draw_c(draw &r, int kind)
{
    const struct {
        int low, high;
    } exponents[KINDS] = {{0, 0},    {-20, 20}, {0, 16}, {-20, 20}, {-30, -10},
                          {-20, 20}, {0, 0},    {0, 0},  {-20, 20}, {124, 127}};
    uint32_t bits = (uint32_t)(r.next() >> 32);
    if (kind == 0)
        bits = 0;
    else if (kind != 6 && kind != 7) {
        const int low = exponents[kind].low, high = exponents[kind].high;
        bits = (bits & 0x807fffff) | (uint32_t)(low + 127 + (int)r.below((uint32_t)(high - low + 1))) << 23;
    }
    if (kind == 2)
        bits &= 0x7fffffff;
    float c;
    memcpy(&c, &bits, sizeof c);
    return c;
}

void draw_tile(tile *t, uint64_t seed, int64_t number, int pair, kvg_ref_format fa, kvg_ref_format fb)
{
    draw r = {seed << 48 ^ (uint64_t)pair << 44 ^ (uint64_t)number};
    const int kind = (int)(number % KINDS);
    for (int i = 0; i < M; i++)
        for (int l = 0; l < K; l++)
            t->a[i][l] = draw_code(r, kind, fa, l);
    for (int j = 0; j < N; j++)
        for (int l = 0; l < K; l++)
            t->b[j][l] = draw_code(r, kind, fb, l);
    for (int l = 16; l < K && kind == 3; l++) { /* the second half cancels the first, except for one
                                                   product */
        for (int i = 0; i < M && l != 29; i++)
            t->a[i][l] = t->a[i][l - 16] ^ 0x80;
        for (int j = 0; j < N && l != 29; j++)
            t->b[j][l] = t->b[j][l - 16];
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            t->c[i][j] = draw_c(r, kind);
}

/* Whole numbers from -8 to 8, in C from -100 to 100: every sum is exact. */
void whole_tile(tile *t, int64_t number, kvg_ref_format fa, kvg_ref_format fb)
{
    draw r = {0x77686f6c65u ^ (uint64_t)number};
    for (int i = 0; i < M; i++)
        for (int l = 0; l < K; l++)
            t->a[i][l] = kvg_ref_fp8_encode(fa, (float)((int)r.below(17) - 8));
    for (int j = 0; j < N; j++)
        for (int l = 0; l < K; l++)
            t->b[j][l] = kvg_ref_fp8_encode(fb, (float)((int)r.below(17) - 8));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            t->c[i][j] = (float)((int)r.below(201) - 100);
}

/* ---------------------------------------------------------------- comparing */

struct instruction {
    const char *name;
    const struct kvg_ref_mma_model *model; /* NULL: this GPU does not have it, or there is no model of it */
    size_t offset;                         /* of its results in struct result */
};

struct mismatch {
    int64_t tile;
    int row, column;
    uint32_t got, want;
};

struct tally {
    int64_t elements = 0;
    std::vector<mismatch> shown;
    int64_t wrong = 0;
};

uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

bool same(float got, float want)
{
    return bits_of(got) == bits_of(want) || (got != got && want != want);
}

void compare(const tile *tiles, const result *results, int64_t first, int64_t begin, int64_t end,
             const instruction &what, kvg_ref_format fa, kvg_ref_format fb, tally *tally)
{
    for (int64_t n = begin; n < end; n++) {
        float want[M][N];
        memcpy(want, tiles[n].c, sizeof want);
        kvg_ref_mma_tile t = {};
        t.model = what.model;
        t.m = M, t.n = N, t.k = K;
        t.a_format = fa, t.b_format = fb;
        t.a = tiles[n].a[0], t.a_stride = K;
        t.b = tiles[n].b[0], t.b_stride_k = 1, t.b_stride_n = K;
        t.c = want[0], t.c_stride = N;
        kvg_ref_mma_fp8_tile(&t);
        const float *got =
            reinterpret_cast<const float *>(reinterpret_cast<const char *>(&results[n]) + what.offset);
        for (int i = 0; i < M * N; i++) {
            tally->elements++;
            const float wanted = want[i / N][i % N];
            if (same(got[i], wanted))
                continue;
            if (tally->wrong++ < SHOWN)
                tally->shown.push_back({first + n, i / N, i % N, bits_of(got[i]), bits_of(wanted)});
        }
    }
}

void show(const mismatch &m, const tile &t)
{
    printf("  tile %lld (kind %lld) row %d column %d: GPU %08x, model %08x, c %08x\n    a", (long long)m.tile,
           (long long)(m.tile % KINDS), m.row, m.column, m.got, m.want, bits_of(t.c[m.row][m.column]));
    for (int l = 0; l < K; l++)
        printf(" %02x", t.a[m.row][l]);
    printf("\n    b");
    for (int l = 0; l < K; l++)
        printf(" %02x", t.b[m.column][l]);
    printf("\n");
}

/* ---------------------------------------------------------------- running */

void check(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return;
    fprintf(stderr, "tensor_core_check: %s: %s\n", what, cudaGetErrorString(code));
    exit(3);
}

struct formats {
    kvg_ref_format a, b;
    const char *name;
};
const formats pairs[PAIRS] = {{KVG_REF_E4M3, KVG_REF_E4M3, "e4m3 e4m3"},
                              {KVG_REF_E4M3, KVG_REF_E5M2, "e4m3 e5m2"},
                              {KVG_REF_E5M2, KVG_REF_E4M3, "e5m2 e4m3"},
                              {KVG_REF_E5M2, KVG_REF_E5M2, "e5m2 e5m2"}};

void launch(int pair, int64_t count, const tile *tiles, result *results)
{
    const dim3 grid((unsigned)count);
    switch (pair) {
    case E4M3_E4M3:
        run_tiles<E4M3_E4M3><<<grid, THREADS>>>(tiles, results);
        break;
    case E4M3_E5M2:
        run_tiles<E4M3_E5M2><<<grid, THREADS>>>(tiles, results);
        break;
    case E5M2_E4M3:
        run_tiles<E5M2_E4M3><<<grid, THREADS>>>(tiles, results);
        break;
    default:
        run_tiles<E5M2_E5M2><<<grid, THREADS>>>(tiles, results);
    }
    check(cudaGetLastError(), "kernel launch");
}

struct machine {
    tile *tiles;
    result *results; /* on the device */
    std::vector<tile> host_tiles;
    std::vector<result> host_results;
    unsigned threads;
};

/* Calls work(begin, end, slice) on slices of 0 .. count, one thread each. */
template <class F> void slices(const machine &m, int64_t count, F work)
{
    std::vector<std::thread> team;
    for (unsigned i = 0; i < m.threads; i++)
        team.emplace_back(work, count * i / m.threads, count * (i + 1) / m.threads, i);
    for (auto &t : team)
        t.join();
}

/* Runs `count` tiles from number `first` on and returns the number of mismatches. seed < 0: tiles of whole
 * numbers. */
int64_t run_batch(machine &m, int pair, int64_t seed, int64_t first, int64_t count,
                  const std::vector<instruction> &instructions, std::vector<tally> &totals)
{
    const kvg_ref_format fa = pairs[pair].a, fb = pairs[pair].b;
    slices(m, count, [&](int64_t begin, int64_t end, unsigned) {
        for (int64_t n = begin; n < end; n++)
            if (seed < 0)
                whole_tile(&m.host_tiles[n], first + n, fa, fb);
            else
                draw_tile(&m.host_tiles[n], (uint64_t)seed, first + n, pair, fa, fb);
    });
    check(cudaMemcpy(m.tiles, m.host_tiles.data(), count * sizeof(tile), cudaMemcpyHostToDevice),
          "copy of tiles");
    check(cudaMemset(m.results, 0xff, count * sizeof(result)), "cudaMemset");
    launch(pair, count, m.tiles, m.results);
    check(cudaMemcpy(m.host_results.data(), m.results, count * sizeof(result), cudaMemcpyDeviceToHost),
          "copy of results");
    int64_t wrong = 0;
    for (size_t i = 0; i < instructions.size(); i++) {
        if (!instructions[i].model)
            continue;
        std::vector<tally> parts(m.threads);
        slices(m, count, [&](int64_t begin, int64_t end, unsigned slice) {
            compare(m.host_tiles.data(), m.host_results.data(), first, begin, end, instructions[i], fa, fb,
                    &parts[slice]);
        });
        for (const tally &part : parts) {
            for (const mismatch &x : part.shown)
                if (totals[i].shown.size() < SHOWN) {
                    totals[i].shown.push_back(x);
                    printf("%s %s:\n", instructions[i].name, pairs[pair].name);
                    show(x, m.host_tiles[x.tile - first]);
                }
            totals[i].elements += part.elements;
            totals[i].wrong += part.wrong;
            wrong += part.wrong;
        }
    }
    return wrong;
}

std::vector<instruction> instructions_of(const cudaDeviceProp &gpu)
{
    const char *mma = gpu.major == 8 && gpu.minor == 9 ? "ada_mma"
                      : gpu.major == 9                 ? "hopper_mma"
                      : gpu.major == 12                ? "blackwell"
                                                       : nullptr;
    cudaFuncAttributes code;
    check(cudaFuncGetAttributes(&code, run_tiles<E4M3_E4M3>), "this program holds no code for the GPU");
    const bool has_wgmma = gpu.major == 9 && code.binaryVersion == 90;
    return {
        {"wgmma", has_wgmma ? kvg_ref_mma_model_by_name("hopper_wgmma") : nullptr, offsetof(result, wgmma)},
        {"mma.sync", mma ? kvg_ref_mma_model_by_name(mma) : nullptr, offsetof(result, mma)}};
}

int64_t number_of(const char *option, const char *text, int64_t least)
{
    char *end = nullptr;
    const long long value = text ? strtoll(text, &end, 10) : 0;
    if (!text || end == text || *end || value < least) {
        fprintf(stderr, "tensor_core_check: %s must be a whole number of at least %lld, not '%s'\n", option,
                (long long)least, text ? text : "");
        exit(4);
    }
    return value;
}

} // namespace

int main(int argc, char **argv)
{
    int64_t tiles = 1 << 20, seed = 1;
    for (int i = 1; i < argc; i += 2) {
        const std::string option = argv[i];
        if (option == "--tiles")
            tiles = number_of("--tiles", argv[i + 1], 1);
        else if (option == "--seed")
            seed = number_of("--seed", argv[i + 1], 0);
        else {
            fprintf(stderr, "usage: tensor_core_check [--tiles N] [--seed N]\n");
            return option == "--help" ? 0 : 4;
        }
    }
    cudaDeviceProp gpu;
    check(cudaGetDeviceProperties(&gpu, 0), "no GPU");
    const std::vector<instruction> instructions = instructions_of(gpu);
    if (!instructions[0].model && !instructions[1].model) {
        fprintf(stderr, "tensor_core_check: %s (sm_%d%d): there is no model of its FP8 instructions\n",
                gpu.name, gpu.major, gpu.minor);
        return 3;
    }
    machine m;
    m.threads = std::thread::hardware_concurrency() ? std::thread::hardware_concurrency() : 1;
    m.host_tiles.resize(BATCH);
    m.host_results.resize(BATCH);
    check(cudaMalloc(&m.tiles, BATCH * sizeof(tile)), "cudaMalloc");
    check(cudaMalloc(&m.results, BATCH * sizeof(result)), "cudaMalloc");
    printf("%s (sm_%d%d), %lld tiles of 64 x 8 x 32 each\n", gpu.name, gpu.major, gpu.minor,
           (long long)tiles);
    bool failed = false;
    for (int pair = 0; pair < PAIRS; pair++) {
        std::vector<tally> whole(instructions.size()), totals(instructions.size());
        if (run_batch(m, pair, -1, 0, 256, instructions, whole)) {
            printf("%s: whole numbers differ: operands or results are not where this program expects them\n",
                   pairs[pair].name);
            failed = true;
            continue;
        }
        for (int64_t first = 0; first < tiles; first += BATCH)
            run_batch(m, pair, seed, first, tiles - first < BATCH ? tiles - first : BATCH, instructions,
                      totals);
        for (size_t i = 0; i < instructions.size(); i++) {
            if (!instructions[i].model)
                continue;
            printf("%-9s %s against %-12s: %lld of %lld elements differ\n", instructions[i].name,
                   pairs[pair].name, instructions[i].model->name, (long long)totals[i].wrong,
                   (long long)totals[i].elements);
            failed |= totals[i].wrong != 0;
        }
    }
    cudaFree(m.tiles);
    cudaFree(m.results);
    return failed ? 1 : 0;
}
