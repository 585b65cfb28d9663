/* SPDX-License-Identifier: Apache-2.0
 * How a step reaches the device: launch by launch, or as a graph that was recorded before. Steps
 * that want logits are recorded: those of one row, the decode step, the first time, at every level;
 * at level hopper those of up to BRIM_CUDA_RECORD_ROWS the second time, so that a session with one
 * prompt pays for no graph. Row counts whose launches are alike (brim_w4_hopper_rows_alike) share a
 * recording of the most of them: further rows repeat the last token, write keys and values behind
 * the timeline, where the next step does, and are seen by no row before them. The first node of a
 * graph fills ids, position and the last row from page-locked memory. */
#include "backend/backend_cuda.h"

#include <assert.h>
#include <string.h>

#include "cuda/runtime/runtime.h"

void brim_cuda_note(struct brim_step *step, brim_status status)
{
    if (step->status == BRIM_OK) step->status = status;
}

/* Of the plain attention: a graph is good until the next power of two. */
int64_t brim_cuda_key_max(const struct brim_step *step)
{
    int64_t n = step->first_pos + step->n_row, n_position = step->shape.kv.n_position;
    if (!step->recording) return n;
    if (step->backend->level >= BRIM_CUDA_ATTENTION) return n_position;
    int64_t bucket = 256;
    while (bucket < n) bucket *= 2;
    return bucket < n_position ? bucket : n_position;
}

/* The step's rows are the n_id given and copies of the last. */
static void fill_input(const struct brim_step *step, struct brim_cuda_input *input,
                       const int32_t *ids, int64_t n_id)
{
    input->first_pos = step->first_pos;
    input->last_row = n_id - 1;
    memcpy(input->ids, ids, (size_t)n_id * sizeof *ids);
    for (int64_t i = n_id; i < step->n_row; i++) input->ids[i] = ids[n_id - 1];
}

static brim_status send_input(struct brim_step *step, const int32_t *ids, brim_error *err)
{
    int turn = step->host_in_turn;
    step->host_in_turn = !turn;
    BRIM_TRY(brim_cuda_event_wait(step->host_in_free[turn], err));
    fill_input(step, step->host_in[turn], ids, step->n_row);
    BRIM_TRY(brim_cuda_copy(step->input, step->host_in[turn], brim_cuda_input_bytes(step->n_row),
                            step->stream, "tokens", err));
    return brim_cuda_event_record(step->host_in_free[turn], step->stream, err);
}

/* Of a row count that brim_w4_hopper_rows_alike gives, up to BRIM_CUDA_RECORD_ROWS: 1 to 8, 16 to
 * 64 by sixteens, 96 to 256 by thirty-twos. */
static struct brim_cuda_recording *recording_of(struct brim_step *step, int64_t n_row)
{
    int64_t i = n_row <= 8 ? n_row - 1 : n_row <= 64 ? 7 + n_row / 16 : 9 + n_row / 32;
    assert(i < BRIM_CUDA_RECORDINGS);
    return &step->recordings[i];
}

/* The recording that a step of n_row rows with logits may use, and its rows; NULL: none. */
static struct brim_cuda_recording *find_recording(struct brim_step *step, int64_t n_row,
                                                  int64_t *n_alike)
{
    *n_alike = 1;
    if (n_row == 1) return recording_of(step, 1);
    if (step->backend->level != BRIM_CUDA_HOPPER || n_row > BRIM_CUDA_RECORD_ROWS) return NULL;
    *n_alike = brim_w4_hopper_rows_alike(n_row);
    if (*n_alike > step->shape.n_row_max || step->first_pos + *n_alike > step->shape.kv.n_position)
        return NULL;
    struct brim_cuda_recording *r = recording_of(step, *n_alike);
    if (r->met) return r;
    r->met = true;
    return NULL;
}

/* Replay (true) or begin to record. */
static bool replay(struct brim_step *step, struct brim_cuda_recording *r, const int32_t *ids,
                   int64_t n_id)
{
    if (step->replaying) brim_cuda_note(step, brim_cuda_step_wait(step, &step->error));
    fill_input(step, step->host_in[2], ids, n_id);
    if (r->graph && step->first_pos + step->n_row <= r->key_max) {
        if (step->status == BRIM_OK)
            brim_cuda_note(step, brim_cuda_graph_launch(r->graph, step->stream, &step->error));
        step->replaying = true;
        step->argmax_of = r->logits;
        return true;
    }
    brim_cuda_graph_free(r->graph);
    r->graph = NULL;
    brim_cuda_note(step, brim_cuda_capture_begin(step->stream, &step->error));
    step->recording = step->status == BRIM_OK ? r : NULL;
    r->key_max = brim_cuda_key_max(step);
    if (step->recording)
        brim_cuda_note(step, brim_cuda_copy(step->input, step->host_in[2],
                                            brim_cuda_input_bytes(step->n_row), step->stream,
                                            "tokens", &step->error));
    return false;
}

bool brim_cuda_step_begin(struct brim_step *step, const int32_t *ids, int64_t n_row,
                          int64_t first_pos, bool want_logits)
{
    assert(n_row >= 1 && n_row <= step->shape.n_row_max);
    assert(first_pos + n_row <= step->shape.kv.n_position);
    step->status = BRIM_OK;
    step->n_row = n_row;
    step->first_pos = first_pos;
    step->argmax_of = NULL;
    int64_t n_alike;
    struct brim_cuda_recording *r = want_logits ? find_recording(step, n_row, &n_alike) : NULL;
    if (r) {
        step->n_row = n_alike;
        return replay(step, r, ids, n_row);
    }
    brim_cuda_note(step, send_input(step, ids, &step->error));
    return false;
}

brim_status brim_cuda_step_end(struct brim_step *step, brim_error *err)
{
    struct brim_cuda_recording *r = step->recording;
    if (r) {
        step->recording = NULL;
        void *graph;
        brim_status status = brim_cuda_capture_end(step->stream, &graph,
                                                   step->status == BRIM_OK ? &step->error : NULL);
        brim_cuda_note(step, status);
        if (step->status == BRIM_OK)
            brim_cuda_note(step, brim_cuda_graph_launch(graph, step->stream, &step->error));
        if (step->status == BRIM_OK)
            r->graph = graph;
        else
            brim_cuda_graph_free(graph);
        step->replaying = step->status == BRIM_OK;
    }
    if (step->status != BRIM_OK && err) *err = step->error;
    return step->status;
}
