/* tree.c: the treap of tree.h. The caller locks. */
#include "core/tree.h"

#include <stdbool.h>

static bool before(const SimTreeNode *a, const SimTreeNode *b)
{
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

// xorshift32 (Marsaglia 2003). Its quality matters little, and races do no harm.
static uint32_t next_priority(void)
{
    static _Thread_local uint32_t x = 2463534242u;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x;
}

// Cuts the tree into the nodes before `at` and the others.
static void split(SimTreeNode *root, const SimTreeNode *at, SimTreeNode **low, SimTreeNode **high)
{
    while (root) {
        if (before(root, at)) {
            *low = root;
            low = &root->right;
            root = root->right;
        } else {
            *high = root;
            high = &root->left;
            root = root->left;
        }
    }
    *low = *high = NULL;
}

// Joins two trees; all of `low` lies before all of `high`.
static SimTreeNode *merge(SimTreeNode *low, SimTreeNode *high)
{
    SimTreeNode *root, **link = &root;
    while (low && high) {
        if (low->priority > high->priority) {
            *link = low;
            link = &low->right;
            low = low->right;
        } else {
            *link = high;
            link = &high->left;
            high = high->left;
        }
    }
    *link = low ? low : high;
    return root;
}

void sim_tree_insert(SimTreeNode **root, SimTreeNode *node)
{
    node->priority = next_priority();
    while (*root && (*root)->priority >= node->priority)
        root = before(node, *root) ? &(*root)->left : &(*root)->right;
    split(*root, node, &node->left, &node->right);
    *root = node;
}

void sim_tree_remove(SimTreeNode **root, SimTreeNode *node)
{
    while (*root != node) root = before(node, *root) ? &(*root)->left : &(*root)->right;
    *root = merge(node->left, node->right);
}

SimTreeNode *sim_tree_floor(SimTreeNode *root, size_t key)
{
    SimTreeNode *best = NULL;
    while (root) {
        if (root->key <= key) {
            best = root;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    return best;
}

SimTreeNode *sim_tree_ceiling(SimTreeNode *root, size_t key)
{
    SimTreeNode *best = NULL;
    while (root) {
        if (root->key >= key) {
            best = root;
            root = root->left;
        } else {
            root = root->right;
        }
    }
    return best;
}
