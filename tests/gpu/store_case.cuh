/* SPDX-License-Identifier: Apache-2.0
 *
 * store_case.cuh: compares the store kernel with the host, byte for byte, and its throughput with a
 * device-to-device copy. Part of decode_bench.cu, whose arena and clock it uses.
 */
#ifndef KVG_TESTS_GPU_STORE_CASE_CUH
#define KVG_TESTS_GPU_STORE_CASE_CUH

/* The code of an FP32 quotient, by the host's conversion. */
static uint8_t host_fp8(float x, int e5m2)
{
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, e5m2 ? __NV_E5M2 : __NV_E4M3);
}

static void check_store()
{
    const int64_t tokens = 5000, heads = 8, dim = 128, bs = 16, blocks = 400;
    const int64_t n = tokens * heads * dim;
    for (int src = KVG_F32; src <= KVG_BF16; src++)
        for (int dst : {KVG_BF16, KVG_E4M3, KVG_E5M2})
            for (int lay = 0; lay < 2; lay++)
                for (int odd = 0; odd < 3; odd++) {
                    if (dst == KVG_BF16 && src != KVG_BF16)
                        continue;
                    const int64_t ss = src == KVG_F32 ? 4 : 2, es = dst == KVG_BF16 ? 2 : 1;
                    std::vector<uint8_t> x(2 * n * ss), want(2 * blocks * bs * heads * dim * es, 0xee),
                        got(want.size());
                    std::vector<float> f(2 * n);
                    for (int64_t i = 0; i < 2 * n; i++) {
                        const uint32_t r = mix32(i * 3 + src * 7 + odd);
                        float v;
                        if (odd == 2) { /* any bit pattern, including NaN and infinity */
                            const uint32_t any = src == KVG_F32 ? r : src == KVG_BF16 ? r & 0xffff0000u : r;
                            memcpy(&v, &any, 4);
                        } else {
                            v = ldexpf((float)(int32_t)r, -29 - (int)(mix32(i) % 16));
                        }
                        if (src == KVG_F32) {
                            memcpy(&x[4 * i], &v, 4);
                            f[i] = v;
                        } else if (src == KVG_BF16) {
                            const __nv_bfloat16 h = __float2bfloat16(v);
                            memcpy(&x[2 * i], &h, 2);
                            f[i] = __bfloat162float(h);
                        } else {
                            const __half h = __float2half(v);
                            memcpy(&x[2 * i], &h, 2);
                            f[i] = __half2float(h);
                        }
                    }
                    std::vector<float> scale(16);
                    for (int i = 0; i < 16; i++)
                        scale[i] = odd == 0   ? 0.01f + 0.003f * i
                                   : odd == 1 ? ldexpf(1.f + 0.07f * i, 3 * i - 30)
                                   : i == 3   ? 1e-38f
                                   : i == 4   ? 3e38f
                                              : 1.f / (i + 1);
                    std::vector<int64_t> slot(tokens);
                    for (int64_t i = 0; i < tokens; i++)
                        slot[i] = i % 7 == 3 ? -1 : (i * 37 + 11) % (blocks * bs);
                    const int64_t half = blocks * bs * heads * dim;
                    const int64_t sb = bs * heads * dim, sl = lay ? dim : heads * dim,
                                  sh = lay ? bs * dim : dim;
                    for (int s = 0; s < 2; s++)
                        for (int64_t t = 0; t < tokens; t++)
                            for (int64_t h = 0; h < heads && slot[t] >= 0; h++)
                                for (int64_t d = 0; d < dim; d++) {
                                    const int64_t i = s * n + (t * heads + h) * dim + d;
                                    const int64_t o =
                                        s * half + slot[t] / bs * sb + slot[t] % bs * sl + h * sh + d;
                                    if (dst == KVG_BF16)
                                        memcpy(&want[2 * o], &x[2 * i], 2);
                                    else
                                        want[o] = host_fp8(f[i] / scale[s * 8 + h], dst == KVG_E5M2);
                                }
                    mem.used = 0;
                    char *dx = (char *)mem.take(x.size()), *dy = (char *)mem.take(want.size());
                    float *dscale = (float *)mem.take(64);
                    int64_t *dslot = (int64_t *)mem.take(8 * tokens);
                    CU(cudaMemcpy(dx, x.data(), x.size(), cudaMemcpyHostToDevice));
                    CU(cudaMemset(dy, 0xee, want.size()));
                    CU(cudaMemcpy(dscale, scale.data(), 64, cudaMemcpyHostToDevice));
                    CU(cudaMemcpy(dslot, slot.data(), 8 * tokens, cudaMemcpyHostToDevice));
                    kvg_problem p = {};
                    p.phase = KVG_PHASE_STORE, p.q_dtype = (kvg_dtype)src, p.kv_dtype = (kvg_dtype)dst;
                    p.batch = 1, p.q_heads = 32, p.kv_heads = heads, p.head_dim = dim, p.block_size = bs,
                    p.total_q = tokens;
                    kvg_store_args a = {};
                    a.problem = &p, a.k = dx, a.v = dx + n * ss;
                    a.k_stride_token = a.v_stride_token = heads * dim,
                    a.k_stride_head = a.v_stride_head = dim;
                    a.slot_mapping = dslot, a.tokens = tokens;
                    a.k_cache = {dy, sb, sl, sh}, a.v_cache = {dy + half * es, sb, sl, sh};
                    a.num_blocks = blocks, a.scales = kvg_scales_of(NULL, dscale, dscale + 8, 1);
                    KVG(kvg_cuda_store.store(&a));
                    CU(cudaDeviceSynchronize());
                    CU(cudaMemcpy(got.data(), dy, got.size(), cudaMemcpyDeviceToHost));
                    int64_t wrong = 0, at = -1;
                    for (size_t i = 0; i < got.size(); i++)
                        if (got[i] != want[i]) {
                            /* all NaN codes count as equal */
                            if (dst == KVG_E4M3 && (got[i] & 0x7f) == 0x7f && (want[i] & 0x7f) == 0x7f)
                                continue;
                            if (dst == KVG_E5M2 && (got[i] & 0x7f) > 0x7c && (want[i] & 0x7f) > 0x7c)
                                continue;
                            wrong++, at = (int64_t)i;
                        }
                    failures += wrong > 0;
                    if (wrong)
                        printf("store src %d dst %d layout %d set %d: %lld wrong bytes, last at %lld: %02x "
                               "for %02x FAILED\n",
                               src, dst, lay, odd, (long long)wrong, (long long)at, got[at], want[at]);
                }
    printf("store: all sources, formats, layouts and value sets compared, %d failures\n", failures);
}

static void bench_store()
{
    const int64_t heads = 8, dim = 128, bs = 16;
    const int64_t half = (int64_t)1 << 31;
    double t =
        time_ms([&] { CU(cudaMemcpyAsync(mem.base + half, mem.base, half, cudaMemcpyDeviceToDevice)); }, 9);
    const double roof = 2.0 * half / t / 1e6;
    printf("copy: %.0f GB/s read + written\n", roof);
    for (int64_t tokens : {1, 64, 8192, 131072, 524288})
        for (int src : {KVG_BF16, KVG_F32})
            for (int dst : {KVG_BF16, KVG_E4M3, KVG_E5M2}) {
                if (dst == KVG_BF16 && src != KVG_BF16)
                    continue;
                const int64_t n = tokens * heads * dim, ss = src == KVG_F32 ? 4 : 2,
                              es = dst == KVG_BF16 ? 2 : 1;
                const int64_t blocks = (tokens + bs - 1) / bs + 3;
                mem.used = 0;
                char *x = (char *)mem.take(2 * n * ss),
                     *y = (char *)mem.take(2 * blocks * bs * heads * dim * es);
                float *scale = (float *)mem.take(64);
                int64_t *slots = (int64_t *)mem.take(8 * tokens);
                std::vector<int64_t> slot(tokens);
                std::vector<int32_t> perm(blocks);
                for (int64_t i = 0; i < blocks; i++)
                    perm[i] = (int32_t)i;
                for (int64_t i = blocks - 1; i > 0; i--)
                    std::swap(perm[i], perm[mix32(i) % (i + 1)]);
                for (int64_t i = 0; i < tokens; i++)
                    slot[i] = perm[i / bs] * bs + i % bs;
                std::vector<float> sc(16, 0.0125f);
                CU(cudaMemcpy(scale, sc.data(), 64, cudaMemcpyHostToDevice));
                CU(cudaMemcpy(slots, slot.data(), 8 * tokens, cudaMemcpyHostToDevice));
                if (src == KVG_BF16)
                    fill_q<<<1024, 256>>>((__nv_bfloat16 *)x, 2 * n, 9);
                else
                    for (int h = 0; h < 2; h++) /* finite FP32 numbers, made of pairs of bf16 */
                        fill_q<<<1024, 256>>>((__nv_bfloat16 *)(x + h * n * ss), 2 * n, 9);
                kvg_problem p = {};
                p.phase = KVG_PHASE_STORE, p.q_dtype = (kvg_dtype)src, p.kv_dtype = (kvg_dtype)dst;
                p.batch = 1, p.q_heads = 32, p.kv_heads = heads, p.head_dim = dim, p.block_size = bs,
                p.total_q = tokens;
                kvg_store_args a = {};
                a.problem = &p, a.k = x, a.v = x + n * ss;
                a.k_stride_token = a.v_stride_token = heads * dim, a.k_stride_head = a.v_stride_head = dim;
                a.slot_mapping = slots, a.tokens = tokens;
                const int64_t h2 = blocks * bs * heads * dim * es;
                a.k_cache = {y, bs * heads * dim, heads * dim, dim},
                a.v_cache = {y + h2, bs * heads * dim, heads * dim, dim};
                a.num_blocks = blocks, a.scales = kvg_scales_of(NULL, scale, scale + 8, 1);
                t = time_ms([&] { KVG(kvg_cuda_store.store(&a)); }, 15);
                const double rate = 2.0 * n * (ss + es) / t / 1e6;
                printf("store src %d dst %d tokens %7lld: %.4f ms %.0f GB/s %.1f %% of copy\n", src, dst,
                       (long long)tokens, t, rate, 100 * rate / roof);
            }
}

#endif
