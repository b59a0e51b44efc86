/* random_model.h: models that a few numbers describe: blocks of layers, nested as deep as one
 * likes, with odd widths, tied weights and adapters, and units at any of the sequences.
 */
#ifndef TESTS_RANDOM_MODEL_H
#define TESTS_RANDOM_MODEL_H

#include "fsdp.h"

// Which sequences are units, apart from the model.
typedef enum RandomUnits { UNITS_NONE, UNITS_BLOCKS, UNITS_ALL, UNITS_SOME } RandomUnits;

typedef struct RandomModel {
    int in_dim, out_dim;
    int blocks;        // "l.0" …, then the layer "last"
    int layers;        // linear ones of a sequence
    int nest;          // how many sequences are in each other within a block
    int width;         // columns, at most
    int shape;         // what differs from layer to layer is drawn from it; 0: nothing differs
    bool gelu;         // some layers have one after them
    int norm;          // the same; 1: layer norm, 2: root mean square
    bool tied;         // two layers of each block share their weight
    int adapter;       // columns of an adapter at each block's end; 0: there is none
    RandomUnits units; // UNITS_SOME: drawn from `shape`
} RandomModel;

// "mlp": a sequence of the blocks and "last". Fails the rank where it cannot be made.
Module *random_model_create(const RandomModel *m);
// Makes the sequences below the model units. Its last layer stays for the model itself, whose stage
// of a pipeline has it too.
Status random_model_shard(const RandomModel *m, Module *model, FsdpContext *ctx,
                          const FsdpOptions *options);
// Freezes what is in no adapter; a model without adapters trains its last layer.
void random_model_freeze_base(const RandomModel *m, Module *model);

#endif
