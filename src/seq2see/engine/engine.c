// The Transformer for one thread of a processor: encoder, decoder, and greedy or beam search, in float32 or int8.
//
// `Model` holds packed weights, which never change: sessions in several threads share one. A `Session` is a batch that
// sentences join and leave between steps; the rows of all sentences go through one product. Nothing else has a state.
// The reference is the torch model (model/layers.py, decode/search.py): names and formulas are the same.
//
// Every sum of floats runs in one fixed order, in 16 lanes on every processor, without fused multiply-add, and the products
// of int8 are exact: results are the same bits on all processors, whatever else is in the batch.
//
// Letters   T rows of a pass, one per token; k hypotheses of a sentence (the beam); V vocabulary; M tokens of a source
//           H heads, G heads of keys and values (each serves H / G heads), d width of a head; n outputs, m inputs of a matrix
// Layouts   [a][b] is row-major. Rows of activations lie `stride` floats apart, a multiple of 64, and end in zeros.
//           keys [columns / 16][G · d][16]: 16 keys side by side, so that one vector holds the scores of 16 keys
//           values [columns][G · d]
//           weights [n / NB][m / GROUP][NB][GROUP]: NB outputs side by side, GROUP inputs of each in one instruction
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#define GLUE_(a, b) a##_##b
#define GLUE(a, b) GLUE_(a, b)
#if defined(_WIN32)
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC __attribute__((visibility("default")))
#endif
#define EXPORT(name) GLUE(name, PROCESSOR)  // this file is compiled once for each processor
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))

enum { OK = 0, NO_MEMORY = -1, BAD_ARGUMENT = -2, WRONG_SHAPE = -3, MISSING_TENSOR = -4 };
enum { LANES = 16, PAD = 64, TILE = 4, PASS_ROWS = 512, INNER_ROWS = 64, MAX_SIZE = 1 << 20, MAX_LAYERS = 1000, MAX_BEAM = 256 };
#define NEVER -1e30f      // a score that has no weight
#define MIN_SCORE -1e9f   // of a hypothesis that must not be selected, as in the reference

// ---- Vectors of 16 lanes --------------------------------------------------------------------------------------------
typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));  // whose sums may wrap around
typedef float vf_in_memory __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vi_in_memory __attribute__((vector_size(64), aligned(4), may_alias));
#define LOAD(p) ((vf) * (const vf_in_memory *)(p))
#define STORE(p, v) (*(vf_in_memory *)(p) = (v))
#define SPLAT(x) ((x) - (vf){0})
static const vi LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

INLINE vf choose_lanes(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
#if defined(__AVX512F__)
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
#else
INLINE vf vmax(vf a, vf b) { return choose_lanes(a > b, a, b); }
#endif
INLINE vi vmax_int(vi a, vi b) { vi mask = a > b; return (mask & a) | (~mask & b); }
INLINE float lane_sum(vf a) {
  float x[LANES];
  STORE(x, a);
  for (int half = LANES / 2; half; half /= 2) for (int i = 0; i < half; i++) x[i] += x[i + half];
  return x[0];
}
INLINE float lane_max(vf a) {
  float x[LANES];
  STORE(x, a);
  for (int half = LANES / 2; half; half /= 2) for (int i = 0; i < half; i++) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
  return x[0];
}
INLINE vf first_lanes(vf a, int count) { return (vf)((vi)a & (LANE < count)); }
INLINE int32_t bits_of(float x) { int32_t i; memcpy(&i, &x, 4); return i; }
INLINE float float_of(int32_t i) { float x; memcpy(&x, &i, 4); return x; }

#define ROUND_INTEGER 12582912.0f  // 1.5 · 2²³: in x + this, the last bits are the integer nearest to x, ties to even

INLINE vf vexp(vf x) {  // 2ⁿ · 2ʳ with |r| ≤ ½; 0 below −87; NaN stays NaN
  vf y = x * 1.44269504f, shifted = y + ROUND_INTEGER, r = y - (shifted - ROUND_INTEGER);
  vf p = r * 1.535336188e-4f + 1.339887440e-3f;
  p = p * r + 9.618437358e-3f;
  p = p * r + 5.550332471e-2f;
  p = p * r + 2.402264791e-1f;
  p = p * r + 6.931472029e-1f;
  p = p * r + 1.0f;
  return (vf)(~(x < -87.0f) & (vi)((vu)p + ((vu)shifted << 23)));
}
INLINE vf vexp_any(vf x) { return vexp(choose_lanes(x > 88.0f, SPLAT(88.0f), x)); }
INLINE vf vtanh(vf x) {
  vf size = (vf)((vi)x & 0x7fffffff), e = vexp_any(size * 2.0f), square = x * x;
  vf large = (vf)((vi)(1.0f - 2.0f / (e + 1.0f)) | ((vi)x & (vi)SPLAT(-0.0f)));
  vf small = x + x * square * (-0.333333333f + square * (0.133333333f - square * 0.0539682540f));
  return choose_lanes(size < 0.1f, small, large);
}
INLINE vf verf(vf x) {  // Abramowitz and Stegun 7.1.26: within 1.5e-7
  vf size = (vf)((vi)x & 0x7fffffff), t = 1.0f / (1.0f + 0.3275911f * size);
  vf p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  return (vf)((vi)(1.0f - p * vexp(-size * size)) | ((vi)x & (vi)SPLAT(-0.0f)));
}
static float log_of(float x) {  // of x ≥ 1; x = 2ᵉ · f, ln f by its series in (f − 1) / (f + 1)
  int32_t bits = bits_of(x), e = (bits >> 23) - 127;
  float f = float_of((bits & 0x7fffff) | 0x3f800000);
  if (f > 1.41421356f) f *= 0.5f, e++;
  double t = (f - 1.0) / (f + 1.0), u = t * t;
  return (float)(e * 0.69314718055994531 + 2 * t * (1 + u * (1. / 3 + u * (1. / 5 + u * (1. / 7 + u * (1. / 9 + u / 11))))));
}

// ---- Processors: products of int8 -----------------------------------------------------------------------------------
// Sums are 16 outputs; Weights are GROUP inputs of each of them; `dot` adds the products with GROUP inputs of one row.
// OFFSET is added to the stored weights, where the instruction wants them unsigned, and subtracted from the sums.
#if defined(__AVX512VNNI__)
enum { NB = 64, GROUP = 4, ROWS = 6, OFFSET = 128 };
typedef int8_t input_t;
typedef vi Sums, Weights;  // not __m512i, which GCC copies at each product
INLINE Sums start_sums(int32_t x) { return x - (vi){0}; }
INLINE Weights load_weights(const uint8_t *w) { return *(const vi_in_memory *)w; }
INLINE Sums dot(Sums s, Weights w, int32_t x) {
  return (vi)_mm512_dpbusd_epi32((__m512i)s, (__m512i)w, _mm512_set1_epi32(x));
}
#elif defined(__AVX2__)
enum { NB = 16, ROWS = 6 };
typedef struct { __m256i half[2]; } Sums, Weights;
INLINE Sums start_sums(int32_t x) { return (Sums){{_mm256_set1_epi32(x), _mm256_set1_epi32(x)}}; }
#if defined(__AVXVNNI__)
enum { GROUP = 4, OFFSET = 128 };
typedef int8_t input_t;
INLINE Weights load_weights(const uint8_t *w) {
  return (Weights){{_mm256_loadu_si256((const __m256i *)w), _mm256_loadu_si256((const __m256i *)w + 1)}};
}
INLINE Sums dot(Sums s, Weights w, int32_t x) {
  __m256i inputs = _mm256_set1_epi32(x);
  for (int i = 0; i < 2; i++) s.half[i] = _mm256_dpbusd_avx_epi32(s.half[i], w.half[i], inputs);
  return s;
}
#else  // exact in 16 bits: the instruction for 8 bits would saturate
enum { GROUP = 2, OFFSET = 0 };
typedef int16_t input_t;
INLINE Weights load_weights(const uint8_t *w) {
  const __m128i *from = (const __m128i *)w;
  return (Weights){{_mm256_cvtepi8_epi16(_mm_loadu_si128(from)), _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1))}};
}
INLINE Sums dot(Sums s, Weights w, int32_t x) {
  __m256i inputs = _mm256_set1_epi32(x);
  for (int i = 0; i < 2; i++) s.half[i] = _mm256_add_epi32(s.half[i], _mm256_madd_epi16(w.half[i], inputs));
  return s;
}
#endif
#elif defined(__ARM_FEATURE_DOTPROD)
enum { NB = 16, GROUP = 4, ROWS = 6, OFFSET = 0 };
typedef int8_t input_t;
typedef struct { int32x4_t part[4]; } Sums;
typedef struct { int8x16_t part[4]; } Weights;
INLINE Sums start_sums(int32_t x) { int32x4_t v = vdupq_n_s32(x); return (Sums){{v, v, v, v}}; }
INLINE Weights load_weights(const uint8_t *w) {
  Weights result;
  for (int i = 0; i < 4; i++) result.part[i] = vld1q_s8((const int8_t *)w + 16 * i);
  return result;
}
INLINE Sums dot(Sums s, Weights w, int32_t x) {
  int8x16_t inputs = vreinterpretq_s8_s32(vdupq_n_s32(x));
  for (int i = 0; i < 4; i++) s.part[i] = vdotq_s32(s.part[i], w.part[i], inputs);
  return s;
}
#elif defined(__x86_64__)  // SSE2, which all have
enum { NB = 16, GROUP = 2, ROWS = 3, OFFSET = 0 };
typedef int16_t input_t;
typedef struct { __m128i part[4]; } Sums, Weights;
INLINE Sums start_sums(int32_t x) { __m128i v = _mm_set1_epi32(x); return (Sums){{v, v, v, v}}; }
INLINE Weights load_weights(const uint8_t *w) {
  Weights result;
  for (int i = 0; i < 2; i++) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)w + i);
    result.part[2 * i] = _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
    result.part[2 * i + 1] = _mm_srai_epi16(_mm_unpackhi_epi8(bytes, bytes), 8);
  }
  return result;
}
INLINE Sums dot(Sums s, Weights w, int32_t x) {
  __m128i inputs = _mm_set1_epi32(x);
  for (int i = 0; i < 4; i++) s.part[i] = _mm_add_epi32(s.part[i], _mm_madd_epi16(w.part[i], inputs));
  return s;
}
#else  // plain C
enum { NB = 16, GROUP = 1, ROWS = 3, OFFSET = 0 };
typedef int32_t input_t;
typedef vi Sums, Weights;
INLINE Sums start_sums(int32_t x) { return x - (vi){0}; }
INLINE Weights load_weights(const uint8_t *w) {
  typedef int8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));
  return __builtin_convertvector(*(const bytes *)w, vi);
}
INLINE Sums dot(Sums s, Weights w, int32_t x) { return s + w * x; }
#endif
enum { NV = NB / LANES };

#if defined(PROBE)
// The processors, from 0, that can run here, as bits: plain, avx2, avxvnni, avx512vnni; on others only the first.
PUBLIC int seq2see_processors(void) {
#if defined(__x86_64__)
  unsigned a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !(c & bit_AVX) || !(c & bit_FMA)) return 1;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2) || !(b & bit_BMI2)) return 1;
  unsigned level_4 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
  int wide = (low & 0xe6) == 0xe6 && (b & level_4) == level_4 && (c & bit_AVX512VNNI) ? 8 : 0;
  __get_cpuid_count(7, 1, &a, &b, &c, &d);
  return 3 | wide | (a >> 4 & 1 ? 4 : 0);
#else
  return 1;
#endif
}
#endif

// ---- Memory ---------------------------------------------------------------------------------------------------------
#if defined(FAIL_ALLOCATIONS)
int seq2see_allocations_left = -1;  // for tests: allocations fail when it reaches 0
#endif

// Aligned; NULL if there is no memory. Large blocks ask for huge pages.
static void *allocate_raw(size_t count, size_t size) {
  size_t most = (size_t)1 << (sizeof(size_t) == 8 ? 46 : 30);
  if (size && count > most / size) return NULL;
#if defined(FAIL_ALLOCATIONS)
  if (seq2see_allocations_left == 0) return NULL;
  if (seq2see_allocations_left > 0) seq2see_allocations_left--;
#endif
  size_t bytes = count * size, alignment = bytes >= 4u << 20 ? 2u << 20 : 64;
  char *block = malloc(bytes + alignment + sizeof(void *));
  if (!block) return NULL;
  char *start = (char *)(((uintptr_t)block + sizeof(void *) + alignment - 1) / alignment * alignment);
  memcpy(start - sizeof(void *), &block, sizeof(void *));
#if defined(__linux__)
  if (alignment > 64) madvise(start, bytes, MADV_HUGEPAGE);
#endif
  return start;
}
static void *allocate(size_t count, size_t size) {  // zeroed
  void *start = allocate_raw(count, size);
  return start ? memset(start, 0, count * size) : NULL;
}
static void release(void *start) {
  if (!start) return;
  void *block;
  memcpy(&block, (char *)start - sizeof(void *), sizeof(void *));
  free(block);
}
static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

// What a model or a sentence keeps is taken from few chunks, zeroed, and released at once.
typedef struct Chunk { struct Chunk *next; size_t used, size; } Chunk;
typedef struct { Chunk *chunks; size_t chunk_bytes; int failed; } Arena;

static void *take(Arena *arena, size_t count, size_t size) {
  if (arena->failed || (size && count > ((size_t)1 << (sizeof(size_t) == 8 ? 45 : 29)) / size)) return arena->failed = 1, NULL;
  size_t bytes = round_up(count * size, 64), head = round_up(sizeof(Chunk), 64);
  Chunk *chunk = arena->chunks;
  if (!chunk || chunk->size - chunk->used < bytes) {
    size_t room = head + bytes > arena->chunk_bytes ? head + bytes : arena->chunk_bytes;
    if (!(chunk = allocate(room, 1))) return arena->failed = 1, NULL;
    *chunk = (Chunk){arena->chunks, head, room};
    arena->chunks = chunk;
  }
  void *result = (char *)chunk + chunk->used;
  chunk->used += bytes;
  return result;
}
static void release_arena(Arena *arena) {
  for (Chunk *next, *chunk = arena->chunks; chunk; chunk = next) next = chunk->next, release(chunk);
}

// ---- The model ------------------------------------------------------------------------------------------------------
enum { RELU, GELU, GELU_TANH, SILU };

typedef struct {  // as ModelConfig; the Python side has the same fields in the same order
  int32_t vocab_size, source_vocab_size, width, heads, key_value_heads, head_width, feed_forward;
  int32_t encoder_layers, decoder_layers;  // 0: no such stack
  int32_t activation, gated, rms, norm_first, output_norm, query_key_norm, embedding_norm, window;
  int32_t encoder_positions, decoder_positions;  // rows of the tables that are added to the embeddings; 0: none
  int32_t encoder_rotary, decoder_rotary;        // rows of the tables of rotations; 0: none
  int32_t encoder_relative, decoder_relative;    // distance from which on all keys share one bias; 0: none
  int32_t shared_source, int8;
  float epsilon, embedding_factor, score_factor, score_cap, logit_factor, logit_cap;
} Config;

typedef struct { int n, m, blocks; float *bias, *scale; void *weights; } Linear;  // scale: of the int8 weights, by output
typedef struct { float *gain, *bias; } Norm;  // no gain: there is no norm
typedef struct { Norm norm, output_norm; } AddAndNorm;
typedef struct {
  AddAndNorm attention_norm, cross_norm, feed_forward_norm;
  Linear queries_keys_values, project, cross_queries, cross_keys_values, cross_project, up, gate, down;
  float *query_norm, *key_norm;
  int local;  // attends to the latest `window` tokens
} Layer;
typedef struct {
  int layers, causal, relative, rotary, position_rows;
  Layer *layer;
  Norm embedding_norm, final_norm;
  float *embedding, *positions, *segment;   // [V][stride], [positions][stride], [stride]
  float *rotation, *local_rotation, *bias;  // [positions][d] cosines, then sines; [H][2 · relative + 1] by distance
} Stack;
typedef struct { char name[80]; int rows, columns, given, optional; float *to; size_t stride; Linear *linear; } Tensor;

typedef struct {
  Config config;
  int stride, key_width;  // of a row [width]; G · d
  Stack encoder, decoder;
  Linear unembedding;
  float *local;  // [layers of the decoder] 1 in a layer with a window
  Tensor *tensors;
  int tensor_count, tensor_room;
  Arena arena;
} Model;

// Registers a tensor that the Python side has to give, by its name in the torch model.
static Tensor *expect(Model *m, const char *stack, int layer, const char *name, int rows, int columns) {
  if (m->tensor_count == m->tensor_room) return m->arena.failed = 1, NULL;
  Tensor *t = &m->tensors[m->tensor_count++];
  char *at = t->name, digits[12];
  const char *parts[] = {stack, ".", name, NULL}, *of_layer[] = {stack, ".blocks.", digits, ".", name, NULL};
  int end = 11;
  digits[end] = 0;
  for (int i = layer; end == 11 || i; i /= 10) digits[--end] = (char)('0' + i % 10);
  of_layer[2] = digits + end;
  for (const char **part = layer >= 0 ? of_layer : *stack ? parts : parts + 2; *part; part++)
    for (const char *c = *part; *c && at < t->name + sizeof t->name - 1; c++) *at++ = *c;
  t->rows = rows, t->columns = columns;
  return t;
}
static float *expect_table(Model *m, const char *stack, int layer, const char *name, int rows, int columns, size_t stride) {
  Tensor *t = expect(m, stack, layer, name, rows, columns);
  if (!t) return NULL;
  t->stride = stride;
  return t->to = take(&m->arena, (size_t)rows * stride + LANES, sizeof(float));
}
static void expect_norm(Model *m, const char *stack, int layer, const char *gain, const char *bias, Norm *norm) {
  norm->gain = expect_table(m, stack, layer, gain, 1, m->config.width, m->stride);
  if (m->config.rms || m->arena.failed) return;
  norm->bias = expect_table(m, stack, layer, bias, 1, m->config.width, m->stride);
  m->tensors[m->tensor_count - 1].optional = 1;
}
static void expect_linear(Model *m, const char *stack, int layer, const char *weight, const char *bias, Linear *l, int n, int inputs) {
  l->n = n, l->m = inputs, l->blocks = (n + NB - 1) / NB;
  size_t outputs = (size_t)l->blocks * NB, padded = round_up((size_t)inputs, PAD);
  l->bias = take(&m->arena, outputs, sizeof(float));
  l->scale = take(&m->arena, outputs, sizeof(float));
  l->weights = take(&m->arena, outputs * padded + 4096, m->config.int8 ? 1 : sizeof(float));  // + what is prefetched
  Tensor *t = expect(m, stack, layer, weight, n, inputs);
  if (t) t->linear = l;
  if ((t = expect(m, stack, layer, bias, 1, n))) t->to = l->bias, t->stride = outputs, t->optional = 1;
}
#define EXPECT_LINEAR(name, to, n, inputs) expect_linear(m, stack, i, name ".weight", name ".bias", to, n, inputs)
#define EXPECT_NORM(name, to) expect_norm(m, stack, i, name ".weight", name ".bias", to)

static void expect_add_and_norm(Model *m, const char *stack, int i, const char *const names[4], AddAndNorm *to) {
  expect_norm(m, stack, i, names[0], names[1], &to->norm);
  if (m->config.output_norm) expect_norm(m, stack, i, names[2], names[3], &to->output_norm);
}
#define EXPECT_AROUND(name, to)                                                                                   \
  expect_add_and_norm(m, stack, i, (const char *const[]){name ".norm.weight", name ".norm.bias",                  \
                      name ".output_norm.weight", name ".output_norm.bias"}, to)

static void expect_layer(Model *m, const char *stack, int i, Layer *l, int cross) {
  const Config *c = &m->config;
  int width = c->width, heads = c->heads * c->head_width, keys = m->key_width;
  EXPECT_AROUND("attention_norm", &l->attention_norm);
  EXPECT_LINEAR("attention.queries_keys_values", &l->queries_keys_values, heads + 2 * keys, width);
  EXPECT_LINEAR("attention.project", &l->project, width, heads);
  if (c->query_key_norm) {
    l->query_norm = expect_table(m, stack, i, "attention.query_norm.weight", 1, c->head_width, (size_t)c->head_width);
    l->key_norm = expect_table(m, stack, i, "attention.key_norm.weight", 1, c->head_width, (size_t)c->head_width);
  }
  if (cross) {
    EXPECT_AROUND("cross_norm", &l->cross_norm);
    EXPECT_LINEAR("cross.queries", &l->cross_queries, heads, width);
    EXPECT_LINEAR("cross.keys_values", &l->cross_keys_values, 2 * keys, width);
    EXPECT_LINEAR("cross.project", &l->cross_project, width, heads);
  }
  EXPECT_AROUND("feed_forward_norm", &l->feed_forward_norm);
  EXPECT_LINEAR("feed_forward.up", &l->up, c->feed_forward, width);
  if (c->gated) EXPECT_LINEAR("feed_forward.gate", &l->gate, c->feed_forward, width);
  EXPECT_LINEAR("feed_forward.down", &l->down, width, c->feed_forward);
}
static void expect_stack(Model *m, const char *stack, Stack *s, int layers, int positions, int rotary, int relative) {
  const Config *c = &m->config;
  int i = -1, d = c->head_width;
  s->layers = layers, s->relative = relative, s->rotary = rotary, s->position_rows = positions, s->causal = s == &m->decoder;
  if (positions) s->positions = expect_table(m, stack, i, "positions", positions, c->width, m->stride);
  s->segment = expect_table(m, stack, i, "segment", 1, c->width, m->stride);
  if (s->segment) m->tensors[m->tensor_count - 1].optional = 1;
  if (rotary) {
    s->rotation = expect_table(m, stack, i, "rotation", rotary, d, (size_t)d);
    s->local_rotation = expect_table(m, stack, i, "local_rotation", s->causal && c->window ? rotary : 1, d, (size_t)d);
  }
  if (relative) s->bias = expect_table(m, stack, i, "bias", c->heads, 2 * relative + 1, (size_t)(2 * relative + 1));
  if (c->embedding_norm) EXPECT_NORM("embedding_norm", &s->embedding_norm);
  if (c->norm_first) EXPECT_NORM("final_norm", &s->final_norm);
  for (int layer = 0; layer < layers && !m->arena.failed; layer++)
    expect_layer(m, stack, layer, &s->layer[layer], s->causal && c->encoder_layers);
}

static int within(const int32_t *values, int count, int least) {
  for (int i = 0; i < count; i++) if (values[i] < least || values[i] > MAX_SIZE) return 0;
  return 1;
}
static int is_valid(const Config *c) {
  if (!within(&c->vocab_size, 7, 1) || !within(&c->window, 7, 0) || c->heads % c->key_value_heads) return 0;
  if ((int64_t)c->heads * c->head_width > MAX_SIZE || c->activation < RELU || c->activation > SILU) return 0;
  int layers = c->encoder_layers | c->decoder_layers;
  return layers > 0 && c->encoder_layers <= MAX_LAYERS && c->decoder_layers <= MAX_LAYERS && c->head_width % 2 <= !c->decoder_rotary;
}
PUBLIC void EXPORT(close_model)(Model *m) {
  if (!m) return;
  release_arena(&m->arena);
  release(m);
}
// Returns a model without weights, or NULL.
PUBLIC Model *EXPORT(create_model)(const Config *config) {
  if (!is_valid(config)) return NULL;
  Model *m = allocate(1, sizeof(Model));
  if (!m) return NULL;
  m->config = *config, m->arena.chunk_bytes = 8 << 20;
  const Config *c = &m->config;
  m->stride = (int)round_up((size_t)c->width, PAD), m->key_width = c->key_value_heads * c->head_width;
  m->tensor_room = 32 + 40 * (c->encoder_layers + c->decoder_layers);
  m->tensors = take(&m->arena, (size_t)m->tensor_room, sizeof(Tensor));
  m->encoder.layer = take(&m->arena, (size_t)c->encoder_layers, sizeof(Layer));
  m->decoder.layer = take(&m->arena, (size_t)c->decoder_layers, sizeof(Layer));
  if (m->arena.failed) return EXPORT(close_model)(m), NULL;
  float *embedding = expect_table(m, "", -1, "embedding.weight", c->vocab_size, c->width, m->stride);
  m->encoder.embedding = m->decoder.embedding = embedding;
  if (!c->shared_source)
    m->encoder.embedding = expect_table(m, "", -1, "source_embedding.weight", c->source_vocab_size, c->width, m->stride);
  if (c->encoder_layers)
    expect_stack(m, "encoder", &m->encoder, c->encoder_layers, c->encoder_positions, c->encoder_rotary, c->encoder_relative);
  if (c->decoder_layers) {
    expect_stack(m, "decoder", &m->decoder, c->decoder_layers, c->decoder_positions, c->decoder_rotary, c->decoder_relative);
    m->local = expect_table(m, "", -1, "local", 1, c->decoder_layers, (size_t)c->decoder_layers);
    expect_linear(m, "", -1, "unembedding.weight", "unembedding_bias", &m->unembedding, c->vocab_size, c->width);
  }
  if (m->arena.failed) return EXPORT(close_model)(m), NULL;
  return m;
}
PUBLIC int EXPORT(tensor_count)(const Model *m) { return m->tensor_count; }
// Tells a tensor's name and shape; returns whether it may be left out.
PUBLIC int EXPORT(expected_tensor)(const Model *m, int index, char name[80], int32_t shape[2]) {
  if (index < 0 || index >= m->tensor_count) return BAD_ARGUMENT;
  const Tensor *t = &m->tensors[index];
  memcpy(name, t->name, sizeof t->name);
  shape[0] = t->rows, shape[1] = t->columns;
  return t->optional;
}

// Packs one row of a matrix, [m], as output n.
static void pack_float(Linear *l, int n, const float *row) {
  float *to = (float *)l->weights + (size_t)(n / NB) * NB * l->m + n % NB;
  for (int i = 0; i < l->m; i++) to[(size_t)i * NB] = row[i];
}
// The same, rounded to integers from −127 to 127 times a scale, as tensors/quantize.py does.
static void pack_int8(Linear *l, int n, const float *row) {
  size_t padded = round_up((size_t)l->m, GROUP);
  uint8_t *to = (uint8_t *)l->weights + (size_t)(n / NB) * NB * padded + (size_t)(n % NB) * GROUP;
  float top = 0;
  for (int i = 0; i < l->m; i++) { float size = row[i] < 0 ? -row[i] : row[i]; top = size > top ? size : top; }
  float scale = top / 127 > 1e-30f ? top / 127 : 1e-30f;
  l->scale[n] = scale / 127;  // the inputs are divided by their largest, too
  for (size_t i = 0; i < padded; i++) {
    float level = i < (size_t)l->m ? row[i] / scale + ROUND_INTEGER : ROUND_INTEGER;
    to[i / GROUP * NB * GROUP + i % GROUP] = (uint8_t)(bits_of(level) + OFFSET);
  }
}
// Gives the model a tensor, [rows][columns], which is copied.
PUBLIC int EXPORT(set_tensor)(Model *m, int index, const float *data, int rows, int columns) {
  if (index < 0 || index >= m->tensor_count || !data) return BAD_ARGUMENT;
  Tensor *t = &m->tensors[index];
  if (rows != t->rows || columns != t->columns) return WRONG_SHAPE;
  for (int r = 0; r < rows; r++, data += columns)
    if (!t->linear) memcpy(t->to + (size_t)r * t->stride, data, (size_t)columns * sizeof(float));
    else if (m->config.int8) pack_int8(t->linear, r, data);
    else pack_float(t->linear, r, data);
  t->given = 1;
  return OK;
}
// A hash of every 251st number of some weights: whoever changes a head or a matrix changes one of these.
PUBLIC int64_t EXPORT(fingerprint)(int count, const uint8_t *const *weights, const int64_t *bytes) {
  uint64_t hash = 0;
  for (int i = 0; i < count; i++)
    for (int64_t at = 0; at + 4 <= bytes[i]; at += 4 * 251) {
      uint32_t bits;
      memcpy(&bits, weights[i] + at, 4);
      hash = (hash ^ bits) * 0x100000001b3u + 1;
    }
  return (int64_t)hash;
}
// Completes a model; until then it must not be used.
PUBLIC int EXPORT(complete_model)(Model *m) {
  for (int i = 0; i < m->tensor_count; i++)
    if (!m->tensors[i].given && !m->tensors[i].optional) return MISSING_TENSOR;
  for (int i = 0; i < m->decoder.layers; i++) m->decoder.layer[i].local = m->local[i] != 0;
  return OK;
}

// ---- Sessions -------------------------------------------------------------------------------------------------------
typedef struct {
  int32_t beam, end, stop_early, score_at_limit, by_caller;  // by_caller: who reads the logits and chooses the tokens
  int32_t divisor_count, banned_count, banned_first_count;
  const float *divisors;  // of a score, by the number of generated tokens
  const int32_t *banned, *banned_first;  // never generated; not as the first token
} Search;

typedef struct { float total, logprob; int token, parent; } Candidate;
typedef struct {  // k hypotheses
  int32_t *tokens; float *logprobs;  // [k][limit]
  int32_t *slots;                    // [k][positions]: the column of the cache that holds each position
} Table;

typedef struct {
  int source_length, prompt_length, limit, positions;  // positions: of prompt and output
  int rows, length, columns, capacity;  // hypotheses; positions and columns in the cache, and its room
  int count, done, broken;              // generated tokens; the search is over; a logit is not a number
  float *memory;                        // of each layer of the decoder: keys, then values of the source
  float *cache, *spare;                 // likewise, of the target; where the cache goes when it is compacted
  size_t spare_floats;
  int32_t *prompt, *next;               // next [k]: inputs of the next step
  Table running, other, finished;       // `other` is where the next running ones are written
  float *scores, *finished_scores;      // [k]
  int *finished_counts;                 // [k]: length of each finished hypothesis; 0: none
  Arena arena;
} Sentence;

typedef struct {  // the rows of one sentence in a pass
  Sentence *sentence;
  int first, rows, position, stride;  // row i is at position + i · stride: 1 in a text, 0 for the hypotheses of a step
  float *keys, *values;               // of the first layer
  size_t layer_floats;                // from one layer to the next
  int column;                         // of the first new key
  const int32_t *slots;               // [rows][positions]; NULL: the column is the position
} Span;

typedef struct {
  const Model *model;
  Search search;
  int capacity, count, pass_rows, score_columns, logit_rows;
  Sentence **sentences;
  Span *spans;
  float *divisors;
  uint8_t *banned, *banned_first;                // [V]
  float *x, *y, *z, *heads, *hidden, *gates;     // rows of a pass: residual stream, norm, queries keys values, …
  float *source_keys, *source_values;            // of one layer of the encoder
  float *scores, *logits, *chunk_tops;           // of up to TILE queries; [rows][stride of V]
  input_t *inputs; float *input_tops; int32_t *input_sums;  // rows as int8; −OFFSET · their sums
  Candidate *best, *kept;                        // [2k], [k]
  int z_stride, head_stride, hidden_stride, input_stride, logit_stride;
} Session;

static int max_int(int a, int b) { return a > b ? a : b; }
static int min_int(int a, int b) { return a < b ? a : b; }

// Makes a buffer hold `count` items; its content is lost.
static int replace(void *buffer, void *new) {
  void *old;
  memcpy(&old, buffer, sizeof old);
  release(old);
  memcpy(buffer, &new, sizeof new);
  return new != NULL;
}
static int resize(void *buffer, size_t count, size_t size) { return replace(buffer, allocate(count, size)); }
// For what is written before it is read, up to the last vector.
static int resize_raw(void *buffer, size_t count, size_t size) { return replace(buffer, allocate_raw(count, size)); }
static int reserve_rows(Session *s, int rows) {
  if (rows <= s->pass_rows) return OK;
  const Model *m = s->model;
  size_t t = (size_t)rows, keys = (size_t)m->key_width;
  s->pass_rows = 0;
  int ok = resize(&s->x, t * m->stride, 4) && resize(&s->y, t * m->stride, 4) && resize(&s->z, t * s->z_stride, 4) &&
           resize(&s->heads, t * s->head_stride, 4) && resize(&s->inputs, t * s->input_stride, sizeof(input_t)) &&
           resize(&s->input_tops, t, 4) && resize(&s->input_sums, t, 4) &&
           resize_raw(&s->source_keys, 16 * t * keys, 4) && resize_raw(&s->source_values, t * keys + 2 * LANES, 4);
  if (!ok) return NO_MEMORY;
  s->pass_rows = rows;
  return OK;
}
static int reserve_scores(Session *s, int columns) {
  if (columns <= s->score_columns) return OK;
  s->score_columns = 0;
  int room = (int)round_up((size_t)columns, LANES) + LANES;
  if (!resize_raw(&s->scores, 2 * TILE * (size_t)room, 4)) return NO_MEMORY;
  s->score_columns = room;
  return OK;
}
static int reserve_logits(Session *s, int rows) {
  if (rows <= s->logit_rows) return OK;
  s->logit_rows = 0;
  if (!resize_raw(&s->logits, (size_t)rows * s->logit_stride, 4)) return NO_MEMORY;
  s->logit_rows = rows;
  return OK;
}

// ---- Norm and linear layers -----------------------------------------------------------------------------------------
// y = (x − mean) / √(variance + ε) · gain + bias, or without the mean; y may be x.
static void normalize(const Model *m, const Norm *norm, const float *x, float *y, int rows) {
  int width = m->config.width, stride = m->stride;
  for (int r = 0; r < rows; r++, x += stride, y += stride) {
    vf sum = SPLAT(0), squares = SPLAT(0);
    float mean = 0;
    if (!m->config.rms) {
      for (int i = 0; i < width; i += LANES) sum += LOAD(x + i);
      mean = lane_sum(sum) / (float)width;
    }
    for (int i = 0; i < width; i += LANES) {
      vf centred = LOAD(x + i) - mean;
      if (i + LANES > width) centred = first_lanes(centred, width - i);
      squares += centred * centred;
    }
    float factor = 1 / __builtin_sqrtf(lane_sum(squares) / (float)width + m->config.epsilon);
    for (int i = 0; i < width; i += LANES) {
      vf scaled = (LOAD(x + i) - mean) * factor * LOAD(norm->gain + i);
      STORE(y + i, norm->bias ? scaled + LOAD(norm->bias + i) : scaled);
    }
  }
}

typedef struct { const Session *s; const Linear *l; const float *x; float *y; int rows, x_stride, y_stride, add; } Product;

INLINE void finish(vf result, float *y, int add) { STORE(y, add ? LOAD(y) + result : result); }

INLINE void block_float32(int rows, const Product *p, int block, int row) {
  const Linear *l = p->l;
  const float *w = (const float *)l->weights + (size_t)block * NB * l->m, *x = p->x + (size_t)row * p->x_stride;
  vf sums[ROWS][NV];
  for (int r = 0; r < rows; r++) for (int j = 0; j < NV; j++) sums[r][j] = LOAD(l->bias + block * NB + j * LANES);
  for (int i = 0; i < l->m; i++, w += NB) {
    vf weights[NV];
    for (int j = 0; j < NV; j++) weights[j] = LOAD(w + j * LANES);
    for (int j = 0; j < NB; j += 16) __builtin_prefetch(w + 512 + j);
    for (int r = 0; r < rows; r++) for (int j = 0; j < NV; j++) sums[r][j] += weights[j] * x[(size_t)r * p->x_stride + i];
  }
  float *y = p->y + (size_t)row * p->y_stride + block * NB;
  for (int r = 0; r < rows; r++) for (int j = 0; j < NV; j++) finish(sums[r][j], y + (size_t)r * p->y_stride + j * LANES, p->add);
}
INLINE void block_int8(int rows, const Product *p, int block, int row) {
  const Linear *l = p->l;
  const Session *s = p->s;
  int groups = (l->m + GROUP - 1) / GROUP;
  const uint8_t *w = (const uint8_t *)l->weights + (size_t)block * NB * groups * GROUP;
  const input_t *x = s->inputs + (size_t)row * s->input_stride;
  Sums sums[ROWS][NV];
  for (int r = 0; r < rows; r++) for (int j = 0; j < NV; j++) sums[r][j] = start_sums(s->input_sums[row + r]);
  for (int i = 0; i < groups; i++, w += NB * GROUP) {
    Weights weights[NV];
    for (int j = 0; j < NV; j++) weights[j] = load_weights(w + j * LANES * GROUP);
    for (int j = 0; j < NB * GROUP; j += 64) __builtin_prefetch(w + 4096 + j);
    for (int r = 0; r < rows; r++) {
      int32_t group;  // GROUP inputs
      memcpy(&group, x + (size_t)r * s->input_stride + i * GROUP, 4);
      for (int j = 0; j < NV; j++) sums[r][j] = dot(sums[r][j], weights[j], group);
    }
  }
  float *y = p->y + (size_t)row * p->y_stride + block * NB;
  for (int r = 0; r < rows; r++)
    for (int j = 0; j < NV; j++) {
      vi integers;
      memcpy(&integers, &sums[r][j], sizeof integers);
      int at = block * NB + j * LANES;
      vf result = __builtin_convertvector(integers, vf) * LOAD(l->scale + at) * s->input_tops[row + r] + LOAD(l->bias + at);
      finish(result, y + (size_t)r * p->y_stride + j * LANES, p->add);
    }
}
#define BLOCK(rows)                                                               \
  NOINLINE void block_##rows(const Product *p, int block, int row) {              \
    if (p->s->model->config.int8) block_int8(rows, p, block, row);                \
    else block_float32(rows, p, block, row);                                      \
  }
typedef void Block(const Product *p, int block, int row);
BLOCK(1) BLOCK(2) BLOCK(3)
#if defined(__AVX2__) || defined(__ARM_FEATURE_DOTPROD)
BLOCK(4) BLOCK(5) BLOCK(6)
static Block *const BLOCKS[ROWS + 1] = {NULL, block_1, block_2, block_3, block_4, block_5, block_6};
#else
static Block *const BLOCKS[ROWS + 1] = {NULL, block_1, block_2, block_3};
#endif

// Rounds rows to int8, each with its own scale: the largest becomes 127.
static void quantize_rows(Session *s, const float *x, int x_stride, int rows, int m) {
  for (int r = 0; r < rows; r++, x += x_stride) {
    input_t *to = s->inputs + (size_t)r * s->input_stride;
    vi tops = {0};  // sizes compare like their bits, and NaN is the largest
    for (int i = 0; i < m; i += LANES) tops = vmax_int(tops, (vi)LOAD(x + i) & 0x7fffffff);
    vu sums = {0};
    int32_t top_bits = 0;
    uint32_t sum = 0;
    for (int i = 0; i < LANES; i++) top_bits = tops[i] > top_bits ? tops[i] : top_bits;
    float top = float_of(top_bits), factor = top > 0 ? 127 / top : 0;
    for (int i = 0; i < m; i += LANES) {
      vu levels = (vu)(LOAD(x + i) * factor + ROUND_INTEGER) - 0x4b400000u;
      sums += levels;
      typedef input_t narrow __attribute__((vector_size(LANES * sizeof(input_t)), aligned(1), may_alias));
      *(narrow *)(to + i) = __builtin_convertvector((vi)levels, narrow);
    }
    for (int i = 0; i < LANES; i++) sum += sums[i];
    s->input_tops[r] = top, s->input_sums[r] = (int32_t)(OFFSET * -sum);
  }
}
// y [T][n] = x [T][m] · Wᵀ + bias, or that added to y.
static void linear(Session *s, const Linear *l, const float *x, int x_stride, int rows, float *y, int y_stride, int add) {
  if (s->model->config.int8) quantize_rows(s, x, x_stride, rows, l->m);
  Product p = {s, l, x, y, rows, x_stride, y_stride, add};
  int parts = (rows + ROWS - 1) / ROWS, part = parts ? (rows + parts - 1) / parts : 1;
  for (int block = 0; block < l->blocks; block++)
    for (int r = 0; r < rows; r += part) BLOCKS[min_int(part, rows - r)](&p, block, r);  // a block stays in the cache for all rows
}

// ---- Attention ------------------------------------------------------------------------------------------------------
typedef struct {
  float factor, cap;
  const float *bias;  // [H][2 · relative + 1]; NULL: none
  int relative;
} Scoring;
typedef struct {  // up to TILE queries that share a head of keys and values
  const float *query[TILE];      // [d]
  float *output[TILE];           // [d]
  const int32_t *slots[TILE];    // NULL: the column is the position
  int from[TILE], to[TILE];      // the positions that a query sees
  int position[TILE], head[TILE];
} Queries;

// softmax(q · Kᵀ · factor) V of a few queries; `keys` and `values` begin at their head.
INLINE void attend_rows(int rows, int slotted, Session *s, const Scoring *how, const Queries *at, const float *keys, const float *values, int columns) {
  int d = s->model->config.head_width, key_width = s->model->key_width, room = s->score_columns;
  float *found = s->scores, *scores[TILE], weights_sum[TILE];
  for (int c = 0; c < columns; c += LANES) {
    const float *tile = keys + (size_t)c * key_width;
    vf sums[TILE];
    for (int r = 0; r < rows; r++) sums[r] = SPLAT(0);
    for (int i = 0; i < d; i++) { vf k = LOAD(tile + i * LANES); for (int r = 0; r < rows; r++) sums[r] += k * at->query[r][i]; }
    for (int r = 0; r < rows; r++) STORE(found + (size_t)r * room + c, sums[r]);
  }
  for (int r = 0; r < rows; r++) {
    int from = at->from[r], to = at->to[r], end = (to + LANES - 1) / LANES * LANES;
    scores[r] = found + (size_t)r * room;
    if (slotted) {
      float *picked = found + (size_t)(TILE + r) * room;
      for (int j = from; j < to; j++) picked[j] = scores[r][at->slots[r][j]];
      scores[r] = picked;
    }
    float *x = scores[r];
    for (int j = 0; j < from; j++) x[j] = NEVER;
    for (int j = to; j < end; j++) x[j] = NEVER;
    vf top = SPLAT(NEVER), sum = SPLAT(0);
    int special = how->cap != 0 || how->bias != NULL;
    float factor = special ? 1.0f : how->factor;  // otherwise it can wait for the exponential
    if (special) {
      const float *bias = how->bias ? how->bias + (size_t)at->head[r] * (2 * how->relative + 1) + how->relative : NULL;
      for (int j = 0; j < end; j += LANES) {
        vf scaled = LOAD(x + j) * how->factor;
        if (how->cap != 0) scaled = vtanh(scaled / how->cap) * how->cap;
        STORE(x + j, scaled);
      }
      for (int j = from; bias && j < to; j++) x[j] += bias[max_int(-how->relative, min_int(how->relative, j - at->position[r]))];
      for (int j = 0; j < from; j++) x[j] = NEVER;
      for (int j = to; j < end; j++) x[j] = NEVER;
    }
    for (int j = 0; j < end; j += LANES) top = vmax(top, LOAD(x + j));
    float best = lane_max(top);
    for (int j = 0; j < end; j += LANES) { vf e = vexp((LOAD(x + j) - best) * factor); sum += e; STORE(x + j, e); }
    weights_sum[r] = 1 / lane_sum(sum);
  }
  int last = 0;
  for (int r = 0; r < rows; r++) last = max_int(last, at->to[r]);
  for (int r = 0; r < rows; r++)  // weights of keys that only other queries see
    for (int j = (at->to[r] + LANES - 1) / LANES * LANES; j < last; j++) scores[r][j] = 0;
  for (int i = 0; i < d; i += 2 * LANES) {
    vf sums[TILE][2];
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = SPLAT(0);
    for (int j = 0; j < last; j++)
      for (int r = 0; r < rows; r++) {
        const float *v = values + (size_t)(slotted ? at->slots[r][j] : j) * key_width + i;
        for (int half = 0; half < 2; half++) sums[r][half] += LOAD(v + half * LANES) * scores[r][j];
      }
    for (int r = 0; r < rows; r++) {
      float out[2 * LANES];
      for (int half = 0; half < 2; half++) STORE(out + half * LANES, sums[r][half] * weights_sum[r]);
      memcpy(at->output[r] + i, out, (size_t)min_int(2 * LANES, d - i) * sizeof(float));
    }
  }
}
#define ATTEND(rows)                                                                                              \
  NOINLINE void attend_##rows(Session *s, const Scoring *how, const Queries *at, const float *k, const float *v, int columns) { \
    if (at->slots[0]) attend_rows(rows, 1, s, how, at, k, v, columns);                                            \
    else attend_rows(rows, 0, s, how, at, k, v, columns);                                                         \
  }
ATTEND(1) ATTEND(2) ATTEND(3) ATTEND(4)
typedef void Attend(Session *s, const Scoring *how, const Queries *at, const float *keys, const float *values, int columns);
static Attend *const ATTENDS[TILE + 1] = {NULL, attend_1, attend_2, attend_3, attend_4};

typedef struct { int from_first, causal, window, keys; } Sight;  // what the rows of a span see of so many keys

// All heads of the rows of a span: queries in z, outputs to `heads`.
static void attend(Session *s, const Span *span, const Scoring *how, const float *keys, const float *values, int columns,
                   const int32_t *slots, int slot_stride, Sight sight) {
  const Config *c = &s->model->config;
  int d = c->head_width, group = c->heads / c->key_value_heads, items = span->rows * group;
  for (int g = 0; g < c->key_value_heads; g++)
    for (int first = 0; first < items; first += TILE) {
      int count = min_int(TILE, items - first);
      Queries at;
      for (int i = 0; i < count; i++) {
        int row = (first + i) / group, head = g * group + (first + i) % group, position = span->position + row * span->stride;
        size_t t = (size_t)(span->first + row);
        at.query[i] = s->z + t * s->z_stride + (size_t)head * d;
        at.output[i] = s->heads + t * s->head_stride + (size_t)head * d;
        at.slots[i] = slots ? slots + (size_t)row * slot_stride : NULL;
        at.to[i] = sight.causal ? position + 1 : sight.keys;
        at.from[i] = sight.window ? max_int(0, at.to[i] - sight.window) : 0;
        at.position[i] = position, at.head[i] = head;
      }
      if (!slots) columns = at.to[count - 1];  // the last row sees the most
      ATTENDS[count](s, how, &at, keys + (size_t)g * d * LANES, values + (size_t)g * d, columns);
    }
}
// Stores rows of new keys, [G · d] each and `stride` apart, from a column on; the values follow the keys in each row.
static void store_keys(const Model *m, const float *rows, int stride, int count, float *keys, float *values, int column) {
  int width = m->key_width;
  for (int r = 0; r < count; r++, rows += stride, column++) {
    float *to = keys + (size_t)(column / LANES) * width * LANES + column % LANES;
    for (int i = 0; i < width; i++) to[(size_t)i * LANES] = rows[i];
    memcpy(values + (size_t)column * width, rows + width, (size_t)width * sizeof(float));
  }
}
static void normalize_heads(const Model *m, const float *gain, float *x, int heads) {
  int d = m->config.head_width;
  for (int h = 0; h < heads; h++, x += d) {
    vf squares = SPLAT(0);
    for (int i = 0; i < d; i += LANES) {
      vf v = i + LANES > d ? first_lanes(LOAD(x + i), d - i) : LOAD(x + i);
      squares += v * v;
    }
    float factor = 1 / __builtin_sqrtf(lane_sum(squares) / (float)d + m->config.epsilon);
    for (int i = 0; i < d; i++) x[i] = x[i] * factor * gain[i];
  }
}
// Rotates each pair (x_i, x_{i + d/2}) of every head by the angle of its position.
static void rotate(const Model *m, const float *rotation, float *x, int heads) {
  int d = m->config.head_width, half = d / 2;
  for (int h = 0; h < heads; h++, x += d)
    for (int i = 0; i < half; i++) {
      float first = x[i], second = x[i + half], cosine = rotation[i], sine = rotation[half + i];
      x[i] = first * cosine - second * sine;
      x[i + half] = second * cosine + first * sine;
    }
}

// ---- The stacks -----------------------------------------------------------------------------------------------------
static const float *before(Session *s, const AddAndNorm *around, int rows) {
  if (!s->model->config.norm_first) return s->x;
  normalize(s->model, &around->norm, s->x, s->y, rows);
  return s->y;
}
// x = x + W · input, with the norms that follow.
static void add_projected(Session *s, const AddAndNorm *around, const Linear *l, const float *input, int stride, int first, int rows) {
  const Model *m = s->model;
  float *x = s->x + (size_t)first * m->stride, *y = s->y + (size_t)first * m->stride;
  if (m->config.output_norm) {
    linear(s, l, input, stride, rows, y, m->stride, 0);
    normalize(m, &around->output_norm, y, y, rows);
    for (int i = 0; i < rows * m->stride; i += LANES) STORE(x + i, LOAD(x + i) + LOAD(y + i));
  } else {
    linear(s, l, input, stride, rows, x, m->stride, 1);
  }
  if (!m->config.norm_first) normalize(m, &around->norm, x, x, rows);
}
static void activate(const Config *c, float *x, const float *gate, int count) {
  for (int i = 0; i < count; i += LANES) {
    vf v = LOAD((c->gated ? gate : x) + i), a;
    switch (c->activation) {
      case RELU: a = (vf)((vi)v & ~(v < 0)); break;
      case GELU: a = v * 0.5f * (1.0f + verf(v * 0.70710678f)); break;
      case GELU_TANH: a = v * 0.5f * (1.0f + vtanh((v + v * v * v * 0.044715f) * 0.79788456f)); break;
      default: a = v / (1.0f + vexp_any(-v));
    }
    STORE(x + i, c->gated ? a * LOAD(x + i) : a);
  }
}
static void feed_forward(Session *s, const Layer *l, int rows) {
  const Model *m = s->model;
  const float *input = before(s, &l->feed_forward_norm, rows);
  for (int first = 0; first < rows; first += INNER_ROWS) {
    int count = min_int(INNER_ROWS, rows - first);
    linear(s, &l->up, input + (size_t)first * m->stride, m->stride, count, s->hidden, s->hidden_stride, 0);
    if (m->config.gated) linear(s, &l->gate, input + (size_t)first * m->stride, m->stride, count, s->gates, s->hidden_stride, 0);
    activate(&m->config, s->hidden, s->gates, count * s->hidden_stride);
    add_projected(s, &l->feed_forward_norm, &l->down, s->hidden, s->hidden_stride, first, count);
  }
}
static void self_attention(Session *s, const Stack *stack, int layer, const Span *spans, int count, int rows) {
  const Model *m = s->model;
  const Config *c = &m->config;
  const Layer *l = &stack->layer[layer];
  int d = c->head_width, keys_at = c->heads * d;
  linear(s, &l->queries_keys_values, before(s, &l->attention_norm, rows), m->stride, rows, s->z, s->z_stride, 0);
  const float *rotation = l->local ? stack->local_rotation : stack->rotation;
  Scoring how = {c->score_factor, c->score_cap, stack->bias, stack->relative};
  for (const Span *span = spans; span < spans + count; span++) {
    for (int i = 0; i < span->rows; i++) {
      float *q = s->z + (size_t)(span->first + i) * s->z_stride, *k = q + keys_at;
      if (l->query_norm) normalize_heads(m, l->query_norm, q, c->heads), normalize_heads(m, l->key_norm, k, c->key_value_heads);
      if (!rotation) continue;
      const float *angles = rotation + (size_t)(span->position + i * span->stride) * d;
      rotate(m, angles, q, c->heads), rotate(m, angles, k, c->key_value_heads);
    }
    float *keys = span->keys + span->layer_floats * layer, *values = span->values + span->layer_floats * layer;
    store_keys(m, s->z + (size_t)span->first * s->z_stride + keys_at, s->z_stride, span->rows, keys, values, span->column);
    Sight sight = {0, stack->causal, l->local ? c->window : 0, span->rows};
    int columns = span->column + span->rows, stride = span->sentence ? span->sentence->positions : 0;
    attend(s, span, &how, keys, values, columns, span->slots, stride, sight);
  }
  add_projected(s, &l->attention_norm, &l->project, s->heads, s->head_stride, 0, rows);
}
static size_t memory_floats(const Model *m, int length) {  // of one layer
  return (round_up((size_t)length, LANES) + (size_t)length) * m->key_width;
}
static void cross_attention(Session *s, int layer, const Span *spans, int count, int rows) {
  const Model *m = s->model;
  const Config *c = &m->config;
  const Layer *l = &m->decoder.layer[layer];
  linear(s, &l->cross_queries, before(s, &l->cross_norm, rows), m->stride, rows, s->z, s->z_stride, 0);
  Scoring how = {c->score_factor, c->score_cap, NULL, 0};
  for (const Span *span = spans; span < spans + count; span++) {
    int length = span->sentence->source_length;
    const float *keys = span->sentence->memory + memory_floats(m, length) * layer;
    const float *values = keys + round_up((size_t)length, LANES) * m->key_width;
    attend(s, span, &how, keys, values, length, NULL, 0, (Sight){0, 0, 0, length});
  }
  add_projected(s, &l->cross_norm, &l->cross_project, s->heads, s->head_stride, 0, rows);
}
static void embed(Session *s, const Stack *stack, int row, int token, int position) {
  const Model *m = s->model;
  float *x = s->x + (size_t)row * m->stride, factor = m->config.embedding_factor;
  const float *e = stack->embedding + (size_t)token * m->stride;
  const float *p = stack->positions ? stack->positions + (size_t)position * m->stride : NULL;
  for (int i = 0; i < m->stride; i += LANES) {
    vf v = LOAD(e + i) * factor;
    if (stack->segment) v += LOAD(stack->segment + i);
    STORE(x + i, p ? v + LOAD(p + i) : v);
  }
}
// All layers for the rows of these spans, which are embedded in x; the vectors end in y.
static void run_stack(Session *s, const Stack *stack, const Span *spans, int count, int rows) {
  const Model *m = s->model;
  if (stack->embedding_norm.gain) normalize(m, &stack->embedding_norm, s->x, s->x, rows);
  for (int layer = 0; layer < stack->layers; layer++) {
    self_attention(s, stack, layer, spans, count, rows);
    if (stack->causal && m->config.encoder_layers) cross_attention(s, layer, spans, count, rows);
    feed_forward(s, &stack->layer[layer], rows);
  }
  if (stack->final_norm.gain) normalize(m, &stack->final_norm, s->x, s->y, rows);
  else memcpy(s->y, s->x, (size_t)rows * m->stride * sizeof(float));
}
// Encodes sources of these lengths, one after another in `tokens`; the vectors end in y.
static int encode(Session *s, const int32_t *tokens, const int32_t *lengths, int count) {
  const Model *m = s->model;
  int rows = 0, longest = 0, column = 0, error;
  for (int i = 0; i < count; i++) rows += lengths[i], longest = max_int(longest, lengths[i]);
  if ((error = reserve_rows(s, rows)) || (error = reserve_scores(s, longest))) return error;
  for (int i = 0, first = 0; i < count; first += lengths[i++]) {
    float *keys = s->source_keys + (size_t)column * m->key_width, *values = s->source_values + (size_t)first * m->key_width;
    s->spans[i] = (Span){NULL, first, lengths[i], 0, 1, keys, values, 0, 0, NULL};
    for (int j = 0; j < lengths[i]; j++) embed(s, &m->encoder, first + j, tokens[first + j], j);
    column += (int)round_up((size_t)lengths[i], LANES);
  }
  run_stack(s, &m->encoder, s->spans, count, rows);
  return OK;
}
// The keys and values of the sources in y, for all layers of the decoder.
static void remember_sources(Session *s, Sentence *const *sentences, int count) {
  const Model *m = s->model;
  int rows = 0;
  for (int i = 0; i < count; i++) rows += sentences[i]->source_length;
  for (int layer = 0; layer < m->decoder.layers; layer++) {
    linear(s, &m->decoder.layer[layer].cross_keys_values, s->y, m->stride, rows, s->z, s->z_stride, 0);
    for (int i = 0, first = 0; i < count; first += sentences[i++]->source_length) {
      int length = sentences[i]->source_length;
      float *keys = sentences[i]->memory + memory_floats(m, length) * layer;
      store_keys(m, s->z + (size_t)first * s->z_stride, s->z_stride, length, keys, keys + round_up((size_t)length, LANES) * m->key_width, 0);
    }
  }
}
static size_t cache_floats(const Model *m, int capacity) { return 2 * (size_t)capacity * m->key_width; }  // of one layer

static Span span_of(const Model *m, Sentence *sentence, int first, int rows, int prompt) {
  float *values = sentence->cache + (size_t)sentence->capacity * m->key_width;
  return (Span){sentence, first, rows, sentence->length, prompt, sentence->cache, values, cache_floats(m, sentence->capacity),
                sentence->columns, prompt ? NULL : sentence->running.slots};
}
// The logits of these rows of y, after the step of a sentence.
static void compute_logits(Session *s, const float *vectors, int rows) {
  const Config *c = &s->model->config;
  float *y = (float *)vectors;
  if (c->logit_factor != 1)
    for (int i = 0; i < rows * s->model->stride; i += LANES) STORE(y + i, LOAD(y + i) * c->logit_factor);
  linear(s, &s->model->unembedding, vectors, s->model->stride, rows, s->logits, s->logit_stride, 0);
  if (c->logit_cap != 0)
    for (size_t i = 0; i < (size_t)rows * s->logit_stride; i += LANES)
      STORE(s->logits + i, vtanh(LOAD(s->logits + i) / c->logit_cap) * c->logit_cap);
}

// ---- Search ---------------------------------------------------------------------------------------------------------
enum { CHUNK = 64 };  // logits that are skipped together if none can win

// The n best continuations of all rows of a sentence, best first. Returns 0 if a row has no probabilities.
static int best_candidates(Session *s, const Sentence *sentence, float *logits, int rows, Candidate *best, int n) {
  int size = s->model->config.vocab_size, chunks = (size + CHUNK - 1) / CHUNK;
  for (int i = 0; i < n; i++) best[i] = (Candidate){-__builtin_inff(), -__builtin_inff(), 0, 0};
  for (int row = 0; row < rows; row++, logits += s->logit_stride) {
    for (int i = size; i < chunks * CHUNK; i++) logits[i] = NEVER;
    if (sentence->count == 0)
      for (int i = 0; s->search.banned_first_count && i < size; i++) if (s->banned_first[i]) logits[i] = NEVER;
    vf tops = SPLAT(NEVER), sums[2] = {SPLAT(0), SPLAT(0)};
    for (int c = 0; c < chunks; c++) {
      vf top = LOAD(logits + c * CHUNK);
      for (int i = LANES; i < CHUNK; i += LANES) top = vmax(top, LOAD(logits + c * CHUNK + i));
      STORE(s->chunk_tops + c * LANES, top);
      tops = vmax(tops, top);
    }
    float top = lane_max(tops), before = sentence->scores[row];
    for (int i = 0; i < chunks * CHUNK; i += 2 * LANES)
      for (int half = 0; half < 2; half++) sums[half] += vexp(LOAD(logits + i + half * LANES) - top);
    float sum = lane_sum(sums[0] + sums[1]);
    if (!(sum >= 1 && sum <= (float)size && top > NEVER)) return 0;
    float rest = log_of(sum);
    for (int c = 0; c < chunks; c++) {
      float least = best[n - 1].total - before + rest + top - 1e-3f;  // a little lower, for rounding
      vi above = LOAD(s->chunk_tops + c * LANES) > least;
      int any = 0;
      for (int i = 0; i < LANES; i++) any |= above[i];
      if (!any) continue;
      for (int i = c * CHUNK; i < min_int((c + 1) * CHUNK, size); i++) {
        float logprob = (logits[i] - top) - rest, total = logprob + before;
        if (!(total > best[n - 1].total) || s->banned[i] || logits[i] <= NEVER) continue;
        int j = n - 1;
        for (; j > 0 && best[j - 1].total < total; j--) best[j] = best[j - 1];
        best[j] = (Candidate){total, logprob, i, row};
      }
    }
  }
  return 1;
}
static void write_hypothesis(const Sentence *st, const Table *to, int row, const Table *from, const Candidate *c, int count) {
  size_t at = (size_t)row * st->limit, parent = (size_t)c->parent * st->limit, bytes = (size_t)count * 4;
  memcpy(to->tokens + at, from->tokens + parent, bytes), memcpy(to->logprobs + at, from->logprobs + parent, bytes);
  to->tokens[at + count] = c->token, to->logprobs[at + count] = c->logprob;
}
// Adds a hypothesis that has just ended to the k best finished ones, if it is among them.
static void add_finished(const Session *s, Sentence *st, const Candidate *c) {
  int k = s->search.beam, j = k - 1, limit = st->limit, length = st->count + 1;
  float score = c->total / s->divisors[length];
  if (!(score > st->finished_scores[j])) return;
  for (; j > 0 && st->finished_scores[j - 1] < score; j--) {
    size_t to = (size_t)j * limit, from = to - limit, bytes = (size_t)st->finished_counts[j - 1] * 4;
    memcpy(st->finished.tokens + to, st->finished.tokens + from, bytes), memcpy(st->finished.logprobs + to, st->finished.logprobs + from, bytes);
    st->finished_scores[j] = st->finished_scores[j - 1], st->finished_counts[j] = st->finished_counts[j - 1];
  }
  write_hypothesis(st, &st->finished, j, &st->running, c, st->count);
  st->finished_scores[j] = score, st->finished_counts[j] = length;
}
static void continue_from(Sentence *st, const int32_t *parents, int k) {
  for (int i = 0; i < k; i++)
    memcpy(st->other.slots + (size_t)i * st->positions, st->running.slots + (size_t)parents[i] * st->positions, (size_t)st->length * 4);
}
static void swap_tables(Sentence *st) {
  Table table = st->running;
  st->running = st->other, st->other = table;
}
static int is_done(const Session *s, const Sentence *st) {  // after the step that `count` does not count yet
  int k = s->search.beam;
  float worst = st->finished_scores[k - 1];
  if (st->count + 1 >= st->limit) return 1;
  for (int i = 0; i < k; i++) if (!st->finished_counts[i]) return 0;
  if (s->search.stop_early) return 1;
  return st->scores[0] / s->divisors[s->search.score_at_limit ? st->limit : st->count + 1] <= worst;
}
static void choose_beam(Session *s, Sentence *st) {
  int k = s->search.beam, last = st->count + 1 >= st->limit;
  for (int i = 0; i < k; i++) if (s->best[i].token == s->search.end || last) add_finished(s, st, &s->best[i]);
  for (int i = 0; i < 2 * k; i++) if (s->best[i].token == s->search.end || last) s->best[i].total = MIN_SCORE;
  int32_t parents[MAX_BEAM];
  for (int i = 0; i < k; i++) {  // the best of those that are left
    int best = -1;
    for (int j = 0; j < 2 * k; j++) if (s->best[j].parent >= 0 && (best < 0 || s->best[j].total > s->best[best].total)) best = j;
    s->kept[i] = s->best[best];
    s->best[best].parent = -1;
    parents[i] = s->kept[i].parent;
    write_hypothesis(st, &st->other, i, &st->running, &s->kept[i], st->count);
    st->next[i] = s->kept[i].token;
  }
  for (int i = 0; i < k; i++) st->scores[i] = s->kept[i].total;
  continue_from(st, parents, k);
  swap_tables(st);
  st->done = is_done(s, st);
}
static void choose(Session *s, Sentence *st, float *logits) {
  int k = s->search.beam;
  if (!best_candidates(s, st, logits, st->rows, s->best, k > 1 ? 2 * k : 1) || s->best[0].total == -__builtin_inff()) {
    st->done = st->broken = 1;
    return;
  }
  if (k > 1) {
    choose_beam(s, st);
  } else {
    st->running.tokens[st->count] = st->next[0] = s->best[0].token;
    st->running.logprobs[st->count] = s->best[0].logprob;
    st->scores[0] = 0;  // of one hypothesis, only the order within a step matters
    st->done = s->best[0].token == s->search.end || st->count + 1 >= st->limit;
  }
  st->rows = k;
  st->count++;
}
// Computes the logits of these rows of y and chooses the next tokens; `rows` of each of `count` sentences.
static int choose_all(Session *s, Sentence *const *sentences, int count, float *vectors) {
  int stride = s->model->stride, error;
  for (int i = 0; i < count;) {
    int rows = 0, next = i;
    for (; next < count && (next == i || s->search.by_caller || rows + sentences[next]->rows <= INNER_ROWS); next++) rows += sentences[next]->rows;
    if ((error = reserve_logits(s, rows))) return error;
    compute_logits(s, vectors, rows);
    vectors += (size_t)rows * stride;
    if (s->search.by_caller) return OK;
    for (float *logits = s->logits; i < next; i++) {
      int used = sentences[i]->rows;
      choose(s, sentences[i], logits);
      logits += (size_t)used * s->logit_stride;
    }
  }
  return OK;
}

// ---- A step ---------------------------------------------------------------------------------------------------------
// Moves the columns that a hypothesis still sees to the front, in a new cache if there is little room.
static int compact(const Model *m, Sentence *st) {
  int32_t *moved = allocate((size_t)st->capacity, sizeof(int32_t));
  if (!moved) return NO_MEMORY;
  int used = 0, k = st->rows;
  for (int r = 0; r < k; r++) for (int j = 0; j < st->length; j++) moved[st->running.slots[(size_t)r * st->positions + j]] = 1;
  for (int c = 0; c < st->columns; c++) moved[c] = moved[c] ? used++ : -1;
  int capacity = st->capacity, width = m->key_width;
  if (used + 8 * k > capacity) capacity = (int)round_up((size_t)used * 2 + 16 * (size_t)k, LANES);
  size_t floats = cache_floats(m, capacity) * m->decoder.layers + 2 * LANES;
  if (floats != st->spare_floats) {
    release(st->spare);
    st->spare_floats = 0;
    if (!(st->spare = allocate_raw(floats, sizeof(float)))) return release(moved), NO_MEMORY;
    st->spare_floats = floats;
  }
  for (int layer = 0; layer < m->decoder.layers; layer++) {
    const float *keys = st->cache + cache_floats(m, st->capacity) * layer, *values = keys + (size_t)st->capacity * width;
    float *to = st->spare + cache_floats(m, capacity) * layer, *to_values = to + (size_t)capacity * width;
    for (int c = 0; c < st->columns; c++) {
      if (moved[c] < 0) continue;
      const float *from = keys + (size_t)(c / LANES) * width * LANES + c % LANES;
      float *key = to + (size_t)(moved[c] / LANES) * width * LANES + moved[c] % LANES;
      for (int i = 0; i < width; i++) key[(size_t)i * LANES] = from[(size_t)i * LANES];
      memcpy(to_values + (size_t)moved[c] * width, values + (size_t)c * width, (size_t)width * sizeof(float));
    }
  }
  for (int r = 0; r < k; r++)
    for (int j = 0; j < st->length; j++) { int32_t *slot = &st->running.slots[(size_t)r * st->positions + j]; *slot = moved[*slot]; }
  size_t old_floats = cache_floats(m, st->capacity) * m->decoder.layers + 2 * LANES;
  float *cache = st->cache;
  st->cache = st->spare, st->spare = cache, st->spare_floats = old_floats;
  st->columns = used, st->capacity = capacity;
  release(moved);
  return OK;
}
// Feeds the last token of each hypothesis of all sentences.
static int step(Session *s) {
  const Model *m = s->model;
  int rows = 0, columns = 0, error;
  for (int i = 0; i < s->count; i++) {
    Sentence *st = s->sentences[i];
    if (st->length >= st->positions) return BAD_ARGUMENT;
    if (st->columns + st->rows > st->capacity && (error = compact(m, st))) return error;
    rows += st->rows, columns = max_int(columns, max_int(st->columns + st->rows, max_int(st->length + 1, st->source_length)));
  }
  if ((error = reserve_rows(s, rows)) || (error = reserve_scores(s, columns))) return error;
  rows = 0;
  for (int i = 0; i < s->count; i++) {
    Sentence *st = s->sentences[i];
    s->spans[i] = span_of(m, st, rows, st->rows, 0);
    for (int r = 0; r < st->rows; r++) {
      embed(s, &m->decoder, rows++, st->next[r], st->length);
      st->running.slots[(size_t)r * st->positions + st->length] = st->columns + r;
    }
  }
  run_stack(s, &m->decoder, s->spans, s->count, rows);
  for (int i = 0; i < s->count; i++) s->sentences[i]->length++, s->sentences[i]->columns += s->sentences[i]->rows;
  return choose_all(s, s->sentences, s->count, s->y);
}
// Passes the prompts of new sentences through the decoder.
static int prefill(Session *s, Sentence *const *sentences, int count) {
  const Model *m = s->model;
  int rows = 0, longest = 0, error;
  for (int i = 0; i < count; i++) {
    rows += sentences[i]->prompt_length;
    longest = max_int(longest, max_int(sentences[i]->prompt_length, sentences[i]->source_length));
  }
  if ((error = reserve_rows(s, rows)) || (error = reserve_scores(s, longest))) return error;
  rows = 0;
  for (int i = 0; i < count; i++) {
    Sentence *st = sentences[i];
    s->spans[i] = span_of(m, st, rows, st->prompt_length, 1);
    for (int j = 0; j < st->prompt_length; j++) embed(s, &m->decoder, rows++, st->prompt[j], j), st->running.slots[j] = j;
  }
  run_stack(s, &m->decoder, s->spans, count, rows);
  for (int i = 0; i < count; i++) {  // the logits after the last token of each prompt
    Sentence *st = sentences[i];
    int last = s->spans[i].first + st->prompt_length - 1;
    memmove(s->y + (size_t)i * m->stride, s->y + (size_t)last * m->stride, (size_t)m->stride * sizeof(float));
    st->length = st->columns = st->prompt_length, st->rows = 1;
  }
  return choose_all(s, sentences, count, s->y);
}

// ---- Interface ------------------------------------------------------------------------------------------------------
static void release_sentence(Sentence *st) {
  if (!st) return;
  release(st->memory), release(st->cache), release(st->spare);
  release_arena(&st->arena);
  release(st);
}
static Sentence *create_sentence(const Session *s, const int32_t *prompt, int source_length, int prompt_length, int limit) {
  const Model *m = s->model;
  Sentence *st = allocate(1, sizeof(Sentence));
  if (!st) return NULL;
  int k = s->search.beam;
  size_t texts = (size_t)k * limit, slots = (size_t)k * (prompt_length + limit);
  st->source_length = source_length, st->prompt_length = prompt_length, st->limit = limit, st->positions = prompt_length + limit;
  st->rows = 1;
  st->capacity = (int)round_up((size_t)prompt_length + (k > 1 ? 12 * (size_t)k : (size_t)limit), LANES);
  Arena *a = &st->arena;
  a->chunk_bytes = 4096;
  st->prompt = take(a, (size_t)prompt_length, 4), st->next = take(a, (size_t)k, 4);
  st->scores = take(a, (size_t)k, 4), st->finished_scores = take(a, (size_t)k, 4), st->finished_counts = take(a, (size_t)k, sizeof(int));
  for (int i = 0; i < 3; i++) {
    Table *table = (Table *[]){&st->running, &st->other, &st->finished}[i];
    table->tokens = take(a, texts, 4), table->logprobs = take(a, texts, 4);
    if (i < 2) table->slots = take(a, slots, 4);
  }
  st->cache = allocate_raw(cache_floats(m, st->capacity) * m->decoder.layers + 2 * LANES, sizeof(float));
  st->memory = allocate_raw(memory_floats(m, source_length) * m->decoder.layers + 2 * LANES, sizeof(float));
  if (a->failed || !st->cache || !st->memory) return release_sentence(st), NULL;
  memcpy(st->prompt, prompt, (size_t)prompt_length * 4);
  for (int i = 0; i < k; i++) st->finished_scores[i] = MIN_SCORE;
  return st;
}
PUBLIC void EXPORT(close_session)(Session *s) {
  if (!s) return;
  for (int i = 0; s->sentences && i < s->count; i++) release_sentence(s->sentences[i]);
  void *buffers[] = {s->sentences, s->spans, s->divisors, s->banned, s->banned_first, s->x, s->y, s->z, s->heads, s->hidden, s->gates,
                     s->source_keys, s->source_values, s->scores, s->logits, s->chunk_tops, s->inputs, s->input_tops, s->input_sums, s->best, s->kept};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) release(buffers[i]);
  release(s);
}
static int mark(uint8_t *table, const int32_t *ids, int count, int size) {
  for (int i = 0; i < count; i++) {
    if (ids[i] < 0 || ids[i] >= size) return 0;
    table[ids[i]] = 1;
  }
  return 1;
}
// Returns an empty batch for up to `capacity` sentences, or NULL. The model must outlive it.
PUBLIC Session *EXPORT(open_session)(const Model *m, const Search *search, int capacity) {
  const Config *c = &m->config;
  if (capacity < 1 || capacity > MAX_SIZE || search->beam < 1 || search->beam > MAX_BEAM || search->divisor_count < 0) return NULL;
  Session *s = allocate(1, sizeof(Session));
  if (!s) return NULL;
  s->model = m, s->search = *search, s->capacity = capacity;
  s->head_stride = (int)round_up((size_t)c->heads * c->head_width, PAD);
  s->z_stride = s->head_stride + 2 * (int)round_up((size_t)m->key_width, PAD) + PAD;
  s->hidden_stride = (int)round_up((size_t)c->feed_forward, PAD);
  s->input_stride = max_int(max_int(m->stride, s->head_stride), s->hidden_stride);
  s->logit_stride = (int)round_up((size_t)c->vocab_size, PAD);
  size_t vocab = (size_t)s->logit_stride, k = (size_t)search->beam, inner = (size_t)INNER_ROWS * s->hidden_stride;
  int ok = resize(&s->sentences, (size_t)capacity, sizeof(Sentence *)) && resize(&s->spans, (size_t)capacity, sizeof(Span)) &&
           resize_raw(&s->hidden, inner, 4) && resize_raw(&s->gates, c->gated ? inner : 0, 4) &&
           resize(&s->divisors, (size_t)search->divisor_count, 4) && resize(&s->banned, vocab, 1) && resize(&s->banned_first, vocab, 1) &&
           resize(&s->chunk_tops, vocab / CHUNK * LANES, 4) && resize(&s->best, 2 * k, sizeof(Candidate)) && resize(&s->kept, k, sizeof(Candidate));
  ok = ok && mark(s->banned, search->banned, search->banned_count, c->vocab_size) &&
       mark(s->banned_first, search->banned_first, search->banned_first_count, c->vocab_size);
  if (!ok) return EXPORT(close_session)(s), NULL;
  memcpy(s->divisors, search->divisors, (size_t)search->divisor_count * sizeof(float));
  s->search.divisors = NULL, s->search.banned = s->search.banned_first = NULL;  // the caller's
  return s;
}
static int are_tokens(const int32_t *tokens, int count, int size) {
  for (int i = 0; i < count; i++) if (tokens[i] < 0 || tokens[i] >= size) return 0;
  return 1;
}
static int fits(const Stack *stack, int length) {
  return length > 0 && length <= MAX_SIZE && (!stack->position_rows || length <= stack->position_rows) && (!stack->rotary || length <= stack->rotary);
}
static int check_sources(const Model *m, const int32_t *tokens, const int32_t *lengths, int count) {
  int size = m->config.shared_source ? m->config.vocab_size : m->config.source_vocab_size;
  for (int i = 0; i < count; tokens += lengths[i++])
    if (!m->encoder.layers || !fits(&m->encoder, lengths[i]) || !are_tokens(tokens, lengths[i], size)) return BAD_ARGUMENT;
  return OK;
}
// Several sentences join: their sources and prompts, one after another, and how many tokens each may generate. Either all
// join or none.
PUBLIC int EXPORT(join)(Session *s, int count, const int32_t *sources, const int32_t *source_lengths, const int32_t *prompts,
                        const int32_t *prompt_lengths, const int32_t *limits) {
  const Model *m = s->model;
  int translates = m->config.encoder_layers > 0, error = OK, before = s->count;
  if (count < 1 || count > s->capacity - s->count || !m->decoder.layers) return BAD_ARGUMENT;
  if (translates && (error = check_sources(m, sources, source_lengths, count))) return error;
  const int32_t *prompt = prompts;
  for (int i = 0; i < count; prompt += prompt_lengths[i++]) {
    int64_t positions = (int64_t)prompt_lengths[i] + limits[i];
    if (prompt_lengths[i] < 1 || limits[i] < 1 || positions > MAX_SIZE * 2 || !fits(&m->decoder, (int)positions - 1)) return BAD_ARGUMENT;
    if (!are_tokens(prompt, prompt_lengths[i], m->config.vocab_size)) return BAD_ARGUMENT;
    if (!s->search.by_caller && limits[i] >= s->search.divisor_count) return BAD_ARGUMENT;
  }
  for (int i = 0; i < count && !error; prompts += prompt_lengths[i++]) {
    Sentence *st = create_sentence(s, prompts, translates ? source_lengths[i] : 0, prompt_lengths[i], limits[i]);
    if (st) s->sentences[s->count++] = st;
    else error = NO_MEMORY;
  }
  for (int i = 0; i < count && translates && !error;) {  // a few at a time
    int rows = 0, next = i;
    while (next < count && (next == i || rows + source_lengths[next] <= PASS_ROWS)) rows += source_lengths[next++];
    if (!(error = encode(s, sources, source_lengths + i, next - i))) remember_sources(s, s->sentences + before + i, next - i);
    sources += rows, i = next;
  }
  for (int i = 0; i < count && !error;) {
    int rows = 0, next = i;
    while (next < count && (next == i || s->search.by_caller || rows + prompt_lengths[next] <= PASS_ROWS)) rows += prompt_lengths[next++];
    error = prefill(s, s->sentences + before + i, next - i);
    i = next;
  }
  while (error && s->count > before) release_sentence(s->sentences[--s->count]);
  return error;
}
// Runs steps until a sentence is done, at most so many; returns how many are done.
PUBLIC int EXPORT(run)(Session *s, int steps) {
  for (;; steps--) {
    int done = 0, error;
    for (int i = 0; i < s->count; i++) done += s->sentences[i]->done;
    if (done || steps < 1 || !s->count || s->search.by_caller) return done;
    if ((error = step(s))) return error;
  }
}
// The caller chose tokens, [sentences][k], each continuing the hypothesis `parents` of its sentence: computes the next logits.
PUBLIC int EXPORT(advance)(Session *s, const int32_t *tokens, const int32_t *parents) {
  int k = s->search.beam, size = s->model->config.vocab_size;
  if (!s->search.by_caller || !s->count || !are_tokens(tokens, s->count * k, size)) return BAD_ARGUMENT;
  for (int i = 0; i < s->count; i++) if (!are_tokens(parents + i * k, k, s->sentences[i]->rows)) return BAD_ARGUMENT;
  for (int i = 0; i < s->count; i++) {
    Sentence *st = s->sentences[i];
    memcpy(st->next, tokens + i * k, (size_t)k * 4);
    if (k > 1) continue_from(st, parents + i * k, k), swap_tables(st);
    st->rows = k;
  }
  return step(s);
}
// The logits of the last pass, `stride` floats a row.
PUBLIC const float *EXPORT(logits)(const Session *s, int32_t *stride) { return *stride = s->logit_stride, s->logits; }
PUBLIC int EXPORT(is_done)(const Session *s, int row) {
  return row < 0 || row >= s->count ? BAD_ARGUMENT : s->sentences[row]->done;
}
// Reads the best finished hypothesis but `rank`; of one hypothesis, the running one. Tokens and log-probabilities have room for
// its limit; returns their number, 0 if there is none.
PUBLIC int EXPORT(hypothesis)(const Session *s, int row, int rank, int32_t *tokens, float *logprobs, float *score) {
  if (row < 0 || row >= s->count || rank < 0 || rank >= s->search.beam || s->search.by_caller) return BAD_ARGUMENT;
  const Sentence *st = s->sentences[row];
  const Table *table = s->search.beam > 1 ? &st->finished : &st->running;
  int count = st->broken ? 0 : s->search.beam > 1 ? st->finished_counts[rank] : st->count;
  memcpy(tokens, table->tokens + (size_t)rank * st->limit, (size_t)count * 4);
  memcpy(logprobs, table->logprobs + (size_t)rank * st->limit, (size_t)count * 4);
  *score = st->finished_scores[rank];
  return count;
}
// A sentence leaves, and the last one takes its row.
PUBLIC int EXPORT(leave)(Session *s, int row) {
  if (row < 0 || row >= s->count) return BAD_ARGUMENT;
  release_sentence(s->sentences[row]);
  s->sentences[row] = s->sentences[--s->count];
  s->sentences[s->count] = NULL;
  return OK;
}
// The vectors of sources, one after another, [M][width].
PUBLIC int EXPORT(encode)(Session *s, int count, const int32_t *tokens, const int32_t *lengths, float *vectors) {
  const Model *m = s->model;
  int error;
  if (count < 1 || count > s->capacity || s->count || (error = check_sources(m, tokens, lengths, count))) return BAD_ARGUMENT;
  if ((error = encode(s, tokens, lengths, count))) return error;
  int rows = 0;
  for (int i = 0; i < count; i++) rows += lengths[i];
  for (int r = 0; r < rows; r++) memcpy(vectors + (size_t)r * m->config.width, s->y + (size_t)r * m->stride, (size_t)m->config.width * 4);
  return OK;
}
