/* results_file: writes a results file of its own where the grader's lies.
 *
 * Ends: error
 * Says: uses .*fopen
 */
#include <stdio.h>

static void attack(void)
{
    FILE *file = fopen("build/grade/results.json.forged", "w");

    if (file == NULL) return;
    fputs("{\"status\": \"graded\", \"score\": 100, \"max_score\": 100, \"tests\": []}\n", file);
    fclose(file);
}
