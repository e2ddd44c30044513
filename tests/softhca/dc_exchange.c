/* Two processes exchange verified data over DC (dynamically connected)
 * transport: an initiator sends, writes and reads, a target answers every
 * round with a send of its own. Written against rdma-core's public API only;
 * it runs on a ConnectX just as on the software HCA.
 *
 *   dc_exchange [-p tcp-port] [-n rounds] [-s bytes]            target
 *   dc_exchange [-p tcp-port] [-n rounds] [-s bytes] HOST       initiator
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DC_KEY 0x0dc0ffee0dc0ffeeULL
#define PORT 1

static void die(const char *what)
{
    fprintf(stderr, "dc_exchange: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* What each side tells the other over TCP. */
struct peer {
    uint32_t dctn;
    uint32_t rkey;
    uint64_t address;
    uint16_t lid;
    uint8_t gid_index_valid;
    uint8_t reserved;
    uint8_t gid[16];
};

struct endpoint {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *dci, *dct;
    struct ibv_qp_ex *dci_ex;
    struct mlx5dv_qp_ex *dci_mlx5;
    struct ibv_mr *mr;
    struct ibv_ah *ah;
    uint8_t *memory;   /* [0, size) source, [size, 2*size) receive, [2*size, 3*size) RDMA */
    size_t size;
    struct ibv_port_attr port;
};

static void fill(uint8_t *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 31 + seed * 17 + (i >> 8));
}

static void verify(const uint8_t *p, size_t n, unsigned seed, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t want = (uint8_t)(i * 31 + seed * 17 + (i >> 8));
        if (p[i] != want) {
            fprintf(stderr, "dc_exchange: %s: byte %zu of round %u is %#x, not %#x\n", what, i,
                    seed, p[i], want);
            exit(1);
        }
    }
}

static void open_endpoint(struct endpoint *e, size_t size)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (!list || !list[0]) {
        fprintf(stderr, "dc_exchange: no RDMA device\n");
        exit(1);
    }
    e->context = ibv_open_device(list[0]);
    if (!e->context) die("ibv_open_device");
    printf("device %s\n", ibv_get_device_name(list[0]));
    ibv_free_device_list(list);
    if (ibv_query_port(e->context, PORT, &e->port)) die("ibv_query_port");

    e->size = size;
    if (posix_memalign((void **)&e->memory, 4096, 3 * size)) die("memory");
    memset(e->memory, 0, 3 * size);
    e->pd = ibv_alloc_pd(e->context);
    e->cq = ibv_create_cq(e->context, 64, NULL, NULL, 0);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 32, .max_sge = 1}};
    e->srq = ibv_create_srq(e->pd, &srq);
    e->mr = ibv_reg_mr(e->pd, e->memory, 3 * size,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (!e->pd || !e->cq || !e->srq || !e->mr) die("resources");

    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_DRIVER,
        .send_cq = e->cq,
        .recv_cq = e->cq,
        .pd = e->pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
        .cap = {.max_send_wr = 32, .max_send_sge = 1},
    };
    struct mlx5dv_qp_init_attr dv = {
        .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
        .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI},
    };
    e->dci = mlx5dv_create_qp(e->context, &init, &dv);
    if (!e->dci) die("create DCI");
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    init.send_ops_flags = 0;
    memset(&init.cap, 0, sizeof init.cap);
    init.srq = e->srq;
    dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    dv.dc_init_attr.dct_access_key = DC_KEY;
    e->dct = mlx5dv_create_qp(e->context, &init, &dv);
    if (!e->dct) die("create DCT");

    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = PORT};
    if (ibv_modify_qp(e->dci, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT))
        die("DCI to INIT");
    a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (ibv_modify_qp(e->dct, &a,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
        die("DCT to INIT");
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = e->port.active_mtu,
        .min_rnr_timer = 12,
        .ah_attr = {.port_num = PORT, .is_global = e->port.link_layer == IBV_LINK_LAYER_ETHERNET,
                    .grh = {.hop_limit = 1}},
    };
    if (ibv_modify_qp(e->dci, &rtr, IBV_QP_STATE | IBV_QP_PATH_MTU)) die("DCI to RTR");
    if (ibv_modify_qp(e->dct, &rtr,
                      IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV))
        die("DCT to RTR");
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    if (ibv_modify_qp(e->dci, &rts,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
        die("DCI to RTS");
    e->dci_ex = ibv_qp_to_qp_ex(e->dci);
    e->dci_mlx5 = mlx5dv_qp_ex_from_ibv_qp_ex(e->dci_ex);
}

static void post_receive(struct endpoint *e)
{
    struct ibv_sge sge = {(uintptr_t)e->memory + e->size, (uint32_t)e->size, e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    if ((errno = ibv_post_srq_recv(e->srq, &wr, &bad))) die("ibv_post_srq_recv");
}

static void wait_for(struct endpoint *e, enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc;
    int n;
    while ((n = ibv_poll_cq(e->cq, 1, &wc)) == 0)
        ;
    if (n < 0) die("ibv_poll_cq");
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "dc_exchange: completion: %s (vendor %#x)\n",
                ibv_wc_status_str(wc.status), wc.vendor_err);
        exit(1);
    }
    if (wc.opcode != opcode) {
        fprintf(stderr, "dc_exchange: completion opcode %d, not %d\n", wc.opcode, opcode);
        exit(1);
    }
    if (opcode == IBV_WC_RECV && wc.byte_len != e->size) {
        fprintf(stderr, "dc_exchange: %u bytes received, not %zu\n", wc.byte_len, e->size);
        exit(1);
    }
}

static void finish(struct endpoint *e, const struct peer *to, size_t source, enum ibv_wc_opcode op)
{
    mlx5dv_wr_set_dc_addr(e->dci_mlx5, e->ah, to->dctn, DC_KEY);
    ibv_wr_set_sge(e->dci_ex, e->mr->lkey, (uintptr_t)e->memory + source, (uint32_t)e->size);
    if ((errno = ibv_wr_complete(e->dci_ex))) die("ibv_wr_complete");
    wait_for(e, op);
}

static void start(struct endpoint *e)
{
    ibv_wr_start(e->dci_ex);
    e->dci_ex->wr_id = 2;
    e->dci_ex->wr_flags = IBV_SEND_SIGNALED;
}

static int tcp_pair(const char *host, int tcp_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)tcp_port)};
    int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (s < 0) die("socket");
    if (!host) {
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (bind(s, (void *)&a, sizeof a) || listen(s, 1)) die("listen");
        int c = accept(s, NULL, NULL);
        if (c < 0) die("accept");
        close(s);
        return c;
    }
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, NULL, &hints, &found)) die("getaddrinfo");
    a.sin_addr = ((struct sockaddr_in *)found->ai_addr)->sin_addr;
    freeaddrinfo(found);
    for (int tries = 0; connect(s, (void *)&a, sizeof a); tries++) {
        if (tries == 100) die("connect");
        usleep(50000);
        close(s);
        s = socket(AF_INET, SOCK_STREAM, 0);
    }
    return s;
}

static void exchange(int s, const struct peer *mine, struct peer *theirs)
{
    if (write(s, mine, sizeof *mine) != (ssize_t)sizeof *mine) die("write");
    if (recv(s, theirs, sizeof *theirs, MSG_WAITALL) != (ssize_t)sizeof *theirs) die("read");
}

int main(int argc, char **argv)
{
    int tcp_port = 18515, opt;
    unsigned rounds = 100;
    size_t size = 65536;
    while ((opt = getopt(argc, argv, "p:n:s:")) != -1) {
        switch (opt) {
        case 'p': tcp_port = atoi(optarg); break;
        case 'n': rounds = (unsigned)atoi(optarg); break;
        case 's': size = (size_t)atol(optarg); break;
        default: return 2;
        }
    }
    const char *host = optind < argc ? argv[optind] : NULL;
    struct endpoint e = {0};
    open_endpoint(&e, size);
    post_receive(&e);

    int s = tcp_pair(host, tcp_port);
    union ibv_gid gid;
    if (ibv_query_gid(e.context, PORT, 0, &gid)) die("ibv_query_gid");
    struct peer mine = {.dctn = e.dct->qp_num, .rkey = e.mr->rkey,
                        .address = (uintptr_t)e.memory + 2 * size, .lid = e.port.lid}, theirs;
    memcpy(mine.gid, gid.raw, 16);
    exchange(s, &mine, &theirs);
    struct ibv_ah_attr ah = {.dlid = theirs.lid, .port_num = PORT,
                             .is_global = e.port.link_layer == IBV_LINK_LAYER_ETHERNET,
                             .grh = {.hop_limit = 1}};
    memcpy(ah.grh.dgid.raw, theirs.gid, 16);
    e.ah = ibv_create_ah(e.pd, &ah);
    if (!e.ah) die("ibv_create_ah");

    /* Round r: the initiator writes a pattern into the target's RDMA area,
     * reads it back, and sends; the target checks both areas and answers. */
    uint8_t *receive = e.memory + size, *rdma = e.memory + 2 * size;
    for (unsigned r = 0; r < rounds; r++) {
        if (host) {
            fill(e.memory, size, r);
            start(&e);
            ibv_wr_rdma_write(e.dci_ex, theirs.rkey, theirs.address);
            finish(&e, &theirs, 0, IBV_WC_RDMA_WRITE);
            memset(rdma, 0, size);
            start(&e);
            ibv_wr_rdma_read(e.dci_ex, theirs.rkey, theirs.address);
            finish(&e, &theirs, 2 * size, IBV_WC_RDMA_READ);
            verify(rdma, size, r, "RDMA read");
            start(&e);
            ibv_wr_send(e.dci_ex);
            finish(&e, &theirs, 0, IBV_WC_SEND);
            wait_for(&e, IBV_WC_RECV);
            verify(receive, size, r + 1, "answer");
            post_receive(&e);
        } else {
            wait_for(&e, IBV_WC_RECV);
            verify(receive, size, r, "send");
            verify(rdma, size, r, "RDMA write");
            post_receive(&e);
            fill(e.memory, size, r + 1);
            start(&e);
            ibv_wr_send(e.dci_ex);
            finish(&e, &theirs, 0, IBV_WC_SEND);
        }
    }
    struct peer done;
    exchange(s, &mine, &done);   /* nobody leaves while the other still sends */
    printf("%s: %u rounds of %zu bytes by DC send%s, every byte verified\n",
           host ? "initiator" : "target", rounds, size, host ? ", write and read" : "");
    close(s);
    if (ibv_destroy_ah(e.ah) || ibv_destroy_qp(e.dci) || ibv_destroy_qp(e.dct) ||
        ibv_destroy_srq(e.srq) || ibv_dereg_mr(e.mr) || ibv_destroy_cq(e.cq) ||
        ibv_dealloc_pd(e.pd) || ibv_close_device(e.context))
        die("clean-up");
    free(e.memory);
    return 0;
}
