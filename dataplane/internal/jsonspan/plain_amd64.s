#include "textflag.h"

// The bytes of a vector are compared at once. With bit 1 flipped, the quote (0x22) and the control characters (0x00 to 0x1f)
// are the bytes below 0x21, and so, as signed bytes, are all bytes beyond ASCII. The backslash (0x5c) is then 0x5e.
DATA plainBytes<>+0(SB)/1, $0x02
DATA plainBytes<>+1(SB)/1, $0x21
DATA plainBytes<>+2(SB)/1, $0x5e
GLOBL plainBytes<>(SB), RODATA|NOPTR, $3

// func plainBlocks(b []byte) int
TEXT ·plainBlocks(SB), NOSPLIT, $0-32
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), CX
	XORL AX, AX
	VPBROADCASTB plainBytes<>+0(SB), Y0 // the bit to flip
	VPBROADCASTB plainBytes<>+1(SB), Y1 // the first byte that is not below
	VPBROADCASTB plainBytes<>+2(SB), Y2 // the backslash

next:
	LEAQ 64(AX), DX
	CMPQ DX, CX
	JA   done
	VPXOR     (SI)(AX*1), Y0, Y3
	VPXOR     32(SI)(AX*1), Y0, Y4
	VPCMPGTB  Y3, Y1, Y5
	VPCMPGTB  Y4, Y1, Y6
	VPCMPEQB  Y3, Y2, Y3
	VPCMPEQB  Y4, Y2, Y4
	VPOR      Y3, Y5, Y3
	VPOR      Y4, Y6, Y4
	VPOR      Y3, Y4, Y3
	VPTEST    Y3, Y3
	JNZ  done
	MOVQ DX, AX
	JMP  next

done:
	VZEROUPPER
	MOVQ AX, ret+24(FP)
	RET
