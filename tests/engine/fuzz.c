// Random models, batches and mistakes for the sanitizers: `make sanitize`. Arguments: rounds, seed, threads.
//
// One thread: sizes, beams, vocabularies, damaged weights and failing allocations change from round to round. Several: each
// decodes with the same model, and all must find the same.
#define PROCESSOR fuzz
#define FAIL_ALLOCATIONS
#include <pthread.h>
#include <stdio.h>

#include "../../src/seq2see/engine/engine.c"

typedef struct { uint64_t state; } Random;
static int below(Random *r, int n) {  // 0 … n − 1
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((r->state >> 33) % (uint64_t)n);
}
static float number(Random *r, int damaged) {
  static const float BAD[] = {1e30f, -1e38f, 0.0f, 1e-40f};
  if (damaged && below(r, 50) == 0) return below(r, 2) ? BAD[below(r, 4)] : (below(r, 2) ? __builtin_nanf("") : __builtin_inff());
  return (float)(below(r, 2001) - 1000) / 2500;
}
static Config random_config(Random *r) {
  int groups = 1 + below(r, 3), d = 2 * (1 + below(r, 20)), shape = below(r, 4), positions = below(r, 4);
  Config c = {.vocab_size = 3 + below(r, 200), .source_vocab_size = 3 + below(r, 100), .width = 1 + below(r, 90),
              .heads = groups * (1 + below(r, 3)), .key_value_heads = groups, .head_width = d, .feed_forward = 1 + below(r, 150),
              .encoder_layers = shape ? 1 + below(r, 2) : 0, .decoder_layers = shape == 1 ? 0 : 1 + below(r, 2),
              .activation = below(r, 4), .gated = below(r, 2), .rms = below(r, 2), .norm_first = below(r, 2),
              .output_norm = below(r, 2), .query_key_norm = below(r, 2), .embedding_norm = below(r, 2), .window = below(r, 3) * 4,
              .shared_source = below(r, 2), .int8 = below(r, 2), .epsilon = 1e-5f, .embedding_factor = 2.0f, .score_factor = 0.3f,
              .score_cap = (float)below(r, 2) * 5, .logit_factor = 1 + (float)below(r, 2), .logit_cap = (float)below(r, 2) * 9};
  if (positions == 1) c.encoder_positions = c.decoder_positions = 60;
  if (positions == 2) c.encoder_rotary = c.decoder_rotary = 60;
  if (positions == 3) c.encoder_relative = c.decoder_relative = 1 + below(r, 10);
  return c;
}
static Model *random_model(Random *r, const Config *c, int damaged) {
  Model *m = create_model_fuzz(c);
  for (int i = 0; m && i < tensor_count_fuzz(m); i++) {
    char name[80];
    int32_t shape[2];
    int optional = expected_tensor_fuzz(m, i, name, shape);
    if (optional && below(r, 2)) continue;
    float *data = malloc(sizeof(float) * (size_t)shape[0] * (size_t)shape[1]);
    for (int j = 0; j < shape[0] * shape[1]; j++) data[j] = number(r, damaged);
    if (set_tensor_fuzz(m, i, data, shape[0] + 1, shape[1]) != WRONG_SHAPE || set_tensor_fuzz(m, i, data, shape[0], shape[1])) abort();
    free(data);
  }
  if (m && complete_model_fuzz(m)) abort();
  return m;
}
enum { MOST = 5, LONGEST = 50 };

// A batch of random sentences, some of them invalid; returns a checksum of what was found.
static uint64_t decode(Random *r, const Model *m, int failing) {
  const Config *c = &m->config;
  float divisors[LONGEST], vectors[MOST * LONGEST * 100], logprobs[LONGEST], score;
  for (int i = 0; i < LONGEST; i++) divisors[i] = (float)i;
  int32_t banned[] = {0, below(r, c->vocab_size)}, sources[MOST * LONGEST], prompts[MOST * LONGEST], tokens[LONGEST + MOST * 8];
  int32_t lengths[MOST], prompt_lengths[MOST], limits[MOST], parents[MOST * 8];
  int beam = 1 + below(r, 6), by_caller = below(r, 3) == 0;
  Search search = {beam, 2, below(r, 2), below(r, 2), by_caller, LONGEST, 2, 1, divisors, banned, banned + 1};
  if (failing) seq2see_allocations_left = below(r, 40);
  Session *s = open_session_fuzz(m, &search, MOST);
  uint64_t sum = 0;
  for (int turn = 0; s && turn < 12; turn++) {
    if (failing) seq2see_allocations_left = below(r, 60);
    int count = 1 + below(r, 3), source_size = c->shared_source ? c->vocab_size : c->source_vocab_size, wrong = below(r, 12) == 0;
    for (int i = 0; i < count; i++) lengths[i] = 1 + below(r, 30), prompt_lengths[i] = 1 + below(r, 8), limits[i] = 1 + below(r, 30);
    for (int i = 0; i < MOST * LONGEST; i++) sources[i] = below(r, source_size + wrong), prompts[i] = below(r, c->vocab_size + wrong);
    if (wrong) lengths[0] = below(r, 3) - 1, limits[0] = below(r, 100) - 1;
    if (!c->decoder_layers) {
      if (encode_fuzz(s, count, sources, lengths, vectors) == OK) memcpy(&sum, vectors, sizeof sum);
      continue;
    }
    int error = join_fuzz(s, count, sources, lengths, prompts, prompt_lengths, limits);
    if (error == OK) sum = sum * 31 + (uint64_t)count;
    for (int step = 0; by_caller && step < 4 && s->count; step++) {
      for (int i = 0; i < s->count * beam; i++) tokens[i] = below(r, c->vocab_size), parents[i] = below(r, s->sentences[i / beam]->rows);
      if (advance_fuzz(s, tokens, parents)) break;
    }
    int done = run_fuzz(s, below(r, 20));
    if (done < 0) break;  // no memory: the batch is given up
    for (int row = s->count - 1; row >= 0; row--) {
      int over = is_done_fuzz(s, row) || (by_caller && below(r, 2));
      for (int rank = -1; rank <= beam; rank++) {
        int n = hypothesis_fuzz(s, row, rank, tokens, logprobs, &score);
        for (int i = 0; i < n; i++) sum = sum * 31 + (uint64_t)(uint32_t)bits_of(logprobs[i]) + (uint64_t)tokens[i];
      }
      if (over && leave_fuzz(s, row)) abort();
    }
  }
  if (failing) seq2see_allocations_left = -1;
  close_session_fuzz(s);
  return sum;
}
typedef struct { const Model *model; uint64_t seed, found; } Task;
static void *run_task(void *argument) {
  Task *task = argument;
  Random r = {task->seed};
  for (int i = 0; i < 5; i++) task->found = task->found * 31 + decode(&r, task->model, 0);
  return NULL;
}
int main(int count, char **arguments) {
  int rounds = count > 1 ? atoi(arguments[1]) : 100, threads = count > 3 ? atoi(arguments[3]) : 0;
  Random r = {count > 2 ? (uint64_t)atoi(arguments[2]) : 0};
  for (int round = 0; round < rounds; round++) {
    Config c = random_config(&r);
    if (!threads && below(&r, 8) == 0) ((int32_t *)&c)[below(&r, 25)] = below(&r, 5) - 2;  // often invalid
    if (!threads && below(&r, 8) == 0) seq2see_allocations_left = below(&r, 30);
    Model *m = random_model(&r, &c, !threads && below(&r, 3) == 0);
    seq2see_allocations_left = -1;
    if (!m) continue;
    if (!threads) decode(&r, m, below(&r, 3) == 0);
    pthread_t workers[16];
    Task tasks[16];
    for (int i = 0; i < threads; i++) tasks[i] = (Task){m, r.state, 0}, pthread_create(&workers[i], NULL, run_task, &tasks[i]);
    for (int i = 0; i < threads; i++) pthread_join(workers[i], NULL);
    for (int i = 1; i < threads; i++) if (tasks[i].found != tasks[0].found) abort();
    close_model_fuzz(m);
  }
  printf("%d rounds\n", rounds);
  return 0;
}
