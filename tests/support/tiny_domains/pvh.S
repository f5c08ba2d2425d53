/* A PVH kernel that makes N of each: the hypercall xen_version, and CPUID. Then it powers off. AMD
   alone: Intel's instruction for a hypercall is another. */
#include "notes.h"

NOTE(PHYS32_ENTRY, .long _start)

/* 32 bits, no paging. */
.globl _start
_start:
    mov $N, %ebp
1:  mov $XEN_VERSION_CALL, %eax
    xor %ebx, %ebx /* XENVER_version */
    xor %ecx, %ecx
    vmmcall
    dec %ebp
    jnz 1b

    mov $N, %ebp
1:  xor %eax, %eax
    cpuid
    dec %ebp
    jnz 1b

    mov $SCHED_OP, %eax
    mov $SCHEDOP_SHUTDOWN, %ebx
    mov $poweroff, %ecx
    vmmcall
    ud2a

.data
poweroff: .long 0
.section .note.GNU-stack, "", @progbits
