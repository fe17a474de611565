/* A parent that starts two workers, each a process of its own with NVTX ranges. Its counts:
 * parent: 1 "start workers"; worker: 5 "step", in each 3 "layer", in a domain named like its rank,
 * and 1 mark "ready" in the default domain. */
#include <nvtx3/nvToolsExt.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void push(nvtxDomainHandle_t domain, const char *text)
{
    nvtxEventAttributes_t attributes = {0};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = text;
    nvtxDomainRangePushEx(domain, &attributes);
}

static int work(const char *rank)
{
    nvtxDomainHandle_t domain = nvtxDomainCreateA(rank);
    nvtxMarkA("ready");
    for (int step = 0; step < 5; step++) {
        push(domain, "step");
        for (int layer = 0; layer < 3; layer++) {
            push(domain, "layer");
            usleep(1000);
            nvtxDomainRangePop(domain);
        }
        nvtxDomainRangePop(domain);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return work(argv[1]);
    pid_t workers[2];
    nvtxRangePushA("start workers");
    for (int index = 0; index < 2; index++) {
        char rank[16];
        snprintf(rank, sizeof rank, "rank %d", index);
        char *arguments[] = {argv[0], rank, NULL};
        if (posix_spawn(&workers[index], argv[0], NULL, NULL, arguments, environ) != 0)
            return 1;
    }
    nvtxRangePop();
    int failed = 0;
    for (int index = 0; index < 2; index++) {
        int status;
        waitpid(workers[index], &status, 0);
        failed |= status != 0;
    }
    return failed;
}
