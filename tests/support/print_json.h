/* print_json.h: text of any bytes as a string of JSON. */
#ifndef SHARDLAB_PRINT_JSON_H
#define SHARDLAB_PRINT_JSON_H

#include <stdio.h>

// Writes it with its quotes. A message may hold bytes of a program that ran wild: what is no UTF-8
// becomes U+FFFD.
void print_json_string(FILE *out, const char *text);

#endif
