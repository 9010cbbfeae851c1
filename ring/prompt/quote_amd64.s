//go:build !purego

#include "textflag.h"

// func quoteAVX2(p *byte, n int) int
//
// Finds the first quote among the n bytes at p that is not preceded by exactly one backslash, in blocks of 32 bytes.
// Returns its offset, or, when no block has one, the complement of how many bytes were looked at.
// The byte before p must not be a backslash.
TEXT ·quoteAVX2(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	XORQ DI, DI // offset of the block
	XORQ R8, R8 // backslashes among the two bytes before the block, the nearest in bit 1
	SUBQ $32, CX
	JLT  none
	MOVL $0x22, AX
	MOVQ AX, X0
	VPBROADCASTB X0, Y0
	MOVL $0x5c, AX
	MOVQ AX, X1
	VPBROADCASTB X1, Y1

block:
	VMOVDQU   (SI)(DI*1), Y2
	VPCMPEQB  Y0, Y2, Y3
	VPCMPEQB  Y1, Y2, Y4
	VPMOVMSKB Y3, AX // quotes: bit i is byte i
	VPMOVMSKB Y4, BX
	SHLQ      $2, BX
	ORQ       R8, BX // backslashes: bit i is byte i-2
	MOVQ      BX, R8
	SHRQ      $32, R8
	MOVQ      BX, DX
	SHRQ      $1, DX // backslashes: bit i is byte i-1
	NOTQ      BX
	ANDQ      BX, DX // bytes behind exactly one backslash
	NOTQ      DX
	ANDQ      DX, AX
	JNZ       found
	ADDQ      $32, DI
	CMPQ      DI, CX
	JLE       block

none:
	VZEROUPPER
	NOTQ DI
	MOVQ DI, ret+16(FP)
	RET

found:
	VZEROUPPER
	BSFQ AX, AX
	ADDQ AX, DI
	MOVQ DI, ret+16(FP)
	RET
