/* A program that makes a communicator's id before it uses a device, as rank 0 of many programs
 * does.
 */
#include <stdio.h>

#include "nccl.h"
#include "ok.h"

int main(void)
{
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    printf("an id\n");
    return 0;
}
