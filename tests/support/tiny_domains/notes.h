/* What Xen's domain builder reads in a kernel (Xen's public/elfnote.h). */
#define XEN_VERSION 5
#define GUEST_OS 6
#define LOADER 8
#define VIRT_BASE 3
#define ENTRY 1
#define PHYS32_ENTRY 18

#define NOTE(kind, content)                                                                        \
    .section .note.Xen, "a", @note;                                                                \
    .balign 4;                                                                                     \
    .long 2f - 1f, 4f - 3f, kind;                                                                  \
    1: .asciz "Xen";                                                                               \
    2: .balign 4;                                                                                  \
    3: content;                                                                                    \
    4: .balign 4;                                                                                  \
    .text

/* Hypercalls (public/xen.h), and what SCHEDOP_shutdown takes. */
#define MMU_UPDATE 1
#define XEN_VERSION_CALL 17
#define SCHED_OP 29
#define SCHEDOP_SHUTDOWN 2
