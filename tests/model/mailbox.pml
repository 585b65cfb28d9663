/* SPDX-License-Identifier: Apache-2.0
 * The mailbox of src/base/mailbox.h: OWNERS owners (1 or 2), two helpers, a ring of DEPTH slots, PACKETS
 * packets in each of two launches, over words that earlier launches left in any state. Word = generation
 * * 8 + bits, generations modulo TAGS. Every interleaving of single reads and writes is explored;
 * memory order is the business of the C11 and PTX forms. tests/model/check.sh runs it, and the
 * mutations NO_ACK_WAIT, NO_GENERATION, READY_FIRST and ONE_ACK, which must fail. */
#ifndef OWNERS
#define OWNERS 1
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef PACKETS
#define PACKETS 5
#endif
#define HELPERS 2
#define TAGS 16
#define USES ((PACKETS + DEPTH - 1) / DEPTH)
#define ALL_DONE (OWNERS == 2 -> 7 : 3)
#define WORD(use, bits) (((epoch + 1 + (use)) % TAGS) * 8 + (bits))
#define EMPTY 255

byte word[DEPTH];
byte packet[DEPTH]; /* number of the packet, or EMPTY while it is written */
byte epoch;
byte finished;

proctype helper(byte first)
{
    byte c = first, slot, use;
    do
    :: c < PACKETS ->
        slot = c % DEPTH;
        use = c / DEPTH;
#ifndef NO_ACK_WAIT
        if
        :: use == 0
#ifdef ONE_ACK
        :: use > 0 && (word[slot] / 8) == ((epoch + use) % TAGS) && (word[slot] & 6) != 0
#else
        :: use > 0 && word[slot] == WORD(use - 1, ALL_DONE)
#endif
        fi;
#endif
#ifdef READY_FIRST
        word[slot] = WORD(use, 1);
#endif
        packet[slot] = EMPTY;
        packet[slot] = c;
#ifndef READY_FIRST
        word[slot] = WORD(use, 1);
#endif
        c = c + HELPERS
    :: else -> break
    od;
    finished++
}

proctype owner(byte done; byte other)
{
    byte c = 0, slot, use;
    do
    :: c < PACKETS ->
        slot = c % DEPTH;
        use = c / DEPTH;
#ifdef NO_GENERATION
        (word[slot] & 1) == 1 && (word[slot] & done) == 0;
#else
        (word[slot] & (255 - other)) == WORD(use, 1);
#endif
        assert(packet[slot] == c);
        assert(packet[slot] == c); /* still, at the end of the read */
        word[slot] = word[slot] | done; /* one step: an atomic or */
        c++
    :: else -> break
    od;
    finished++
}

inline launch()
{
    finished = 0;
    run helper(0);
    run helper(1);
    run owner(2, 4);
    if
    :: OWNERS == 2 -> run owner(4, 2)
    :: else
    fi;
    finished == HELPERS + OWNERS;
    epoch = (epoch + USES) % TAGS
}

init
{
    byte i, age, bits;
    /* an epoch near the wrap; each word of a generation at or below it, with any bits */
    if
    :: epoch = 3
    :: epoch = TAGS - 2
    fi;
    for (i : 0 .. DEPTH - 1) {
        select(age : 0 .. 2);
        select(bits : 0 .. 7);
        word[i] = ((epoch + TAGS - age) % TAGS) * 8 + bits;
        packet[i] = EMPTY
    }
    launch();
    launch()
}
