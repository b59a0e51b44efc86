/* tree.h: a balanced search tree (a treap) whose nodes live inside the things it orders.
 *
 * Nodes are ordered by key, then by tie. The tree is balanced by random priorities: expected depth
 * is logarithmic whatever the order of insertions (Seidel and Aragon, "Randomized search trees",
 * 1996).
 */
#ifndef SIMGPU_TREE_H
#define SIMGPU_TREE_H

#include <stddef.h>
#include <stdint.h>

typedef struct SimTreeNode {
    size_t key, tie;
    struct SimTreeNode *left, *right;
    uint32_t priority;
} SimTreeNode;

// The thing a node lives in.
#define SIM_TREE_OWNER(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

void sim_tree_insert(SimTreeNode **root, SimTreeNode *node);
void sim_tree_remove(SimTreeNode **root, SimTreeNode *node);
// The last node whose key is at most `key`, and the first whose key is at least `key`; NULL: none.
SimTreeNode *sim_tree_floor(SimTreeNode *root, size_t key);
SimTreeNode *sim_tree_ceiling(SimTreeNode *root, size_t key);

#endif
