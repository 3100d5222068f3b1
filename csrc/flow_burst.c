#include "flow_burst.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

void flow_hash_burst_scalar(const struct hash_key *key, const struct flow_key *const *keys, uint32_t n,
			    uint64_t *hashes)
{
	for (uint32_t i = 0; i < n; i++)
		hashes[i] = flow_hash(key, keys[i]);
}

#ifdef __x86_64__

enum { LANES = 4 };

// Four states side by side: v[i] holds word i of each.
struct lanes {
	__m256i v[4];
};

#define AVX2 static inline __attribute__((target("avx2"), always_inline))

AVX2 __m256i rotate(__m256i x, int bits)
{
	return _mm256_or_si256(_mm256_slli_epi64(x, bits), _mm256_srli_epi64(x, 64 - bits));
}

AVX2 __m256i rotate_16(__m256i x)
{
	const __m256i bytes = _mm256_set_epi8(13, 12, 11, 10, 9, 8, 15, 14, 5, 4, 3, 2, 1, 0, 7, 6, 13, 12, 11, 10, 9, 8,
					      15, 14, 5, 4, 3, 2, 1, 0, 7, 6);

	return _mm256_shuffle_epi8(x, bytes);
}

AVX2 __m256i rotate_32(__m256i x)
{
	return _mm256_shuffle_epi32(x, 0xb1);
}

// As siphash_rounds() in siphash.h.
AVX2 void rounds(struct lanes *s, int n)
{
	for (int i = 0; i < n; i++) {
		s->v[0] = _mm256_add_epi64(s->v[0], s->v[1]);
		s->v[2] = _mm256_add_epi64(s->v[2], s->v[3]);
		s->v[1] = _mm256_xor_si256(rotate(s->v[1], 13), s->v[0]);
		s->v[3] = _mm256_xor_si256(rotate_16(s->v[3]), s->v[2]);
		s->v[0] = rotate_32(s->v[0]);
		s->v[2] = _mm256_add_epi64(s->v[2], s->v[1]);
		s->v[0] = _mm256_add_epi64(s->v[0], s->v[3]);
		s->v[1] = _mm256_xor_si256(rotate(s->v[1], 17), s->v[2]);
		s->v[3] = _mm256_xor_si256(rotate(s->v[3], 21), s->v[0]);
		s->v[2] = rotate_32(s->v[2]);
	}
}

AVX2 void absorb(struct lanes *s, __m256i word)
{
	s->v[3] = _mm256_xor_si256(s->v[3], word);
	rounds(s, 1);
	s->v[0] = _mm256_xor_si256(s->v[0], word);
}

static inline uint64_t word_at(const struct flow_key *key, uint32_t at)
{
	uint64_t word;

	memcpy(&word, key->bytes + at, sizeof(word)); // the room behind the bytes may be read
	return word;
}

AVX2 __m256i words_at(const struct flow_key *const *keys, uint32_t at)
{
	return _mm256_set_epi64x((long long)word_at(keys[3], at), (long long)word_at(keys[2], at),
				 (long long)word_at(keys[1], at), (long long)word_at(keys[0], at));
}

// Four keys of one length, whose last five bytes stand behind whole words.
static __attribute__((target("avx2"))) void four(const struct hash_key *key, const struct flow_key *const *keys,
						 uint32_t length, uint64_t *hashes)
{
	const __m256i k0 = _mm256_set1_epi64x((long long)key->k0), k1 = _mm256_set1_epi64x((long long)key->k1);
	const __m256i five = _mm256_set1_epi64x(0xffffffffffLL), size = _mm256_set1_epi64x((long long)((uint64_t)length << 56));
	struct lanes s = {{
		_mm256_xor_si256(k0, _mm256_set1_epi64x(0x736f6d6570736575LL)),
		_mm256_xor_si256(k1, _mm256_set1_epi64x(0x646f72616e646f6dLL)),
		_mm256_xor_si256(k0, _mm256_set1_epi64x(0x6c7967656e657261LL)),
		_mm256_xor_si256(k1, _mm256_set1_epi64x(0x7465646279746573LL)),
	}};

	for (uint32_t at = 0; at + 8 <= length; at += 8)
		absorb(&s, words_at(keys, at));
	absorb(&s, _mm256_or_si256(_mm256_and_si256(words_at(keys, length - 5), five), size));
	s.v[2] = _mm256_xor_si256(s.v[2], _mm256_set1_epi64x(0xff));
	rounds(&s, 3);
	_mm256_storeu_si256((__m256i *)hashes, _mm256_xor_si256(_mm256_xor_si256(s.v[0], s.v[1]),
								_mm256_xor_si256(s.v[2], s.v[3])));
}

// The keys of this length, in fours; the last four may have one several times.
static void all_of(const struct hash_key *key, const struct flow_key *const *keys, uint32_t n, uint8_t length,
		   uint64_t *hashes)
{
	const struct flow_key *chosen[FLOW_BURST + LANES];
	uint32_t index[FLOW_BURST], count = 0;

	for (uint32_t i = 0; i < n; i++) {
		chosen[count] = keys[i];
		index[count] = i;
		count += keys[i]->length == length;
	}
	for (uint32_t k = count; count > 0 && k % LANES != 0; k++)
		chosen[k] = chosen[count - 1];
	for (uint32_t k = 0; k < count; k += LANES) {
		uint64_t found[LANES];

		four(key, chosen + k, length, found);
		for (uint32_t j = k; j < count && j < k + LANES; j++)
			hashes[index[j]] = found[j - k];
	}
}

void flow_hash_burst_avx2(const struct hash_key *key, const struct flow_key *const *keys, uint32_t n,
			  uint64_t *hashes)
{
	all_of(key, keys, n, FLOW_KEY_IPV4, hashes);
	all_of(key, keys, n, FLOW_KEY_IPV6, hashes);
}

bool flow_hash_has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

#else

void flow_hash_burst_avx2(const struct hash_key *key, const struct flow_key *const *keys, uint32_t n,
			  uint64_t *hashes)
{
	flow_hash_burst_scalar(key, keys, n, hashes);
}

bool flow_hash_has_avx2(void)
{
	return false;
}

#endif

void flow_hash_burst(const struct hash_key *key, const struct flow_key *const *keys, uint32_t n, uint64_t *hashes)
{
	static void (*way)(const struct hash_key *, const struct flow_key *const *, uint32_t, uint64_t *);

	if (way == NULL) // every thread would choose the same
		way = flow_hash_has_avx2() ? flow_hash_burst_avx2 : flow_hash_burst_scalar;
	way(key, keys, n, hashes);
}
