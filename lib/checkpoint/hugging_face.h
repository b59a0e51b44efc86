/* hugging_face.h: which of Hugging Face's tensors hold a parameter of ours. For the files of
 * lib/checkpoint.
 */
#ifndef CHECKPOINT_HUGGING_FACE_H
#define CHECKPOINT_HUGGING_FACE_H

#include <stdbool.h>
#include <stdint.h>

#include "nn.h"

enum { HUGGING_FACE_NAME = 128, HUGGING_FACE_PIECES = 3 };

// Rows of a parameter of ours that are one tensor of theirs.
typedef struct HuggingFacePiece {
    char name[HUGGING_FACE_NAME]; // theirs, with the prefix where it has one
    const char *bare;             // …and without
    int64_t first, rows;          // of ours; a vector's elements are its rows
    int64_t columns;              // 1 of a vector
    int ndim;
    bool turned; // their layout is (columns, rows)
} HuggingFacePiece;

typedef struct HuggingFaceModel {
    bool is_llama;
    // Lists the tensors of a parameter in the order of its rows; returns how many there are.
    int (*pieces)(const Param *param, HuggingFacePiece pieces[HUGGING_FACE_PIECES]);
    // Whether a tensor is none of our parameters; a tied head does not count.
    bool (*is_left_aside)(const char *name);
} HuggingFaceModel;

extern const HuggingFaceModel hugging_face_gpt2, hugging_face_llama;

#endif
