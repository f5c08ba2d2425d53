// rounds COUNT: computes, sweeps, references at random, allocates and forks; 10^8 instructions a round.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static uint64_t x = 88172645463325252ull;
static inline uint64_t rnd(void){ x ^= x<<13; x ^= x>>7; x ^= x<<17; return x; }
int main(int argc,char**argv){
  long rounds = argc>1?atol(argv[1]):20; uint64_t sum=0;
  size_t n = 128u<<20; uint64_t *big = mmap(0,n,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0);
  memset(big,1,n);
  double m[64][64], p[64][64], q[64][64]; for(int i=0;i<64;i++)for(int j=0;j<64;j++)m[i][j]=p[i][j]=i+j;
  for(long r=0;r<rounds;r++){
    for(int k=0;k<20;k++) for(int i=0;i<64;i++)for(int j=0;j<64;j++){double s=0;for(int l=0;l<64;l++)s+=m[i][l]*p[l][j];q[i][j]=s;sum+=(uint64_t)s;}
    for(long i=0;i<1500000;i++) sum+=big[rnd()%(n/8)];
    for(size_t i=0;i<n/8;i+=8) sum+=big[i];
    if(r%4==1){ size_t a=8u<<20; char*b=mmap(0,a,3,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); for(size_t i=0;i<a;i+=4096)b[i]=1; for(int k=0;k<5;k++)for(size_t i=0;i<a;i+=64)sum+=b[i]; munmap(b,a);}
    if(r%16==3){ pid_t c=fork(); if(!c){ for(size_t i=0;i<(2u<<20)/8;i+=512)big[i]=r; _exit(0);} int s; waitpid(c,&s,0);}
    for(long i=0;i<3000000;i++) sum+=rnd()&15;
  }
  printf("%lu\n",sum); return 0; }
