#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <getopt.h>
#include "demo/source.h"
#include "common/last_words.h"
int main(int argc, char **argv)
{
    Trainer t; Source source;
    memset(&t, 0, sizeof t);
    int c; int layers=2, dim=64, heads=4, B=64, steps=1000, every=50; float lr=3e-3f, wd=0.01f; int seed=42;
    while ((c = getopt(argc, argv, "l:d:h:b:s:r:w:e:v:")) != -1) switch (c) {
        case 'l': layers=atoi(optarg); break; case 'd': dim=atoi(optarg); break; case 'h': heads=atoi(optarg); break;
        case 'b': B=atoi(optarg); break; case 's': steps=atoi(optarg); break; case 'r': lr=atof(optarg); break; case 'w': wd=atof(optarg); break; case 'e': seed=atoi(optarg); break; case 'v': every=atoi(optarg); break;
    }
    if (world_from_env(&t.world)) return 2;
    last_words_watch(t.world.rank);
    if (source_sums(&source)) return 2;
    t.opt = (TrainerOptions){.model={.vocab=SUMS_VOCAB,.max_T=SUMS_T,.layers=layers,.heads=heads,.dim=dim},.adamw={.lr=lr,.beta1=.9f,.beta2=.98f,.eps=1e-8f,.weight_decay=wd},.B=B,.T=SUMS_T,.steps=steps,.clip=1,.seed=seed};
    t.model = gpt2_create(&t.opt.model);
    if (world_connect(&t.world, &t.comm)) return 1;
    if (trainer_create(&t)) return 1;
    int32_t *in = malloc(B*SUMS_T*4), *targets = malloc(B*SUMS_T*4);
    for (int step = 1; step <= steps; step++) {
        float loss;
        source_batch(&source, seed, step, t.world.rank*B, B, SUMS_T, in, targets);
        if (trainer_step(&t, step, in, targets, &loss)) return 1;
        if (step % every == 0) {
            Score s;
            if (source_score(&source, &t, &s)) return 1;
            mean_over_ranks(&t,&loss);
            if (t.world.rank==0) {printf("%d loss %.4f right %d/%d %s %s %s\n", step, loss, s.right, s.n, s.example[0], s.example[1], s.example[2]); fflush(stdout);}
        }
    }
    trainer_destroy(&t); world_disconnect(t.comm);
    return 0;
}
