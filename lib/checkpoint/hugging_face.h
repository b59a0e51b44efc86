/* hugging_face.h: which tensors of Hugging Face's hold a parameter of ours. The files of
 * lib/checkpoint share it.
 */
#ifndef CHECKPOINT_HUGGING_FACE_H
#define CHECKPOINT_HUGGING_FACE_H

#include <stdbool.h>
#include <stdint.h>

#include "nn.h"

enum { HUGGING_FACE_NAME = 128, HUGGING_FACE_PIECES = 3 };

// Some rows of a parameter, which are one tensor of theirs.
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
    // The tensors of a parameter in the order of its rows; how many.
    int (*pieces)(const Param *param, HuggingFacePiece pieces[HUGGING_FACE_PIECES]);
    // Tensors that are no parameter of ours, apart from a head that is tied.
    bool (*is_left_aside)(const char *name);
} HuggingFaceModel;

extern const HuggingFaceModel hugging_face_gpt2, hugging_face_llama;

#endif
