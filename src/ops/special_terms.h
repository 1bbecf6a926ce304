// SPDX-License-Identifier: MIT
// Terms of series, as lists that kernels in C++ and kernels that are text take.
#pragma once

// erfinv(x) = x p(w - 2.5) with w = -log(1 - x^2), up to w = 5, and x p(sqrt(w) - 3) beyond; in
// float64 3.125, 6.25 and 3.25, and past sqrt(w) = 4 another p, of sqrt(w) - 5. From the lowest.
#define HOLOGRAM_ERFINV_NEAR_F32                                                      \
  0x1.805c5ep+0f, 0x1.f91ec6p-3f, -0x1.11ca4ep-8f, -0x1.48a6e2p-10f, 0x1.ca712ap-13f, \
      -0x1.27104p-18f, -0x1.d9a2b4p-19f, 0x1.71133p-22f, 0x1.ea3954p-26f
#define HOLOGRAM_ERFINV_FAR_F32                                                                    \
  0x1.6a9efep+1f, 0x1.006daep+0f, 0x1.35261p-7f, -0x1.f32efcp-8f, 0x1.79db6ep-8f, -0x1.e38f06p-9f, \
      0x1.561e9ap-10f, 0x1.e4dc5ap-14f, -0x1.7bd00ap-13f
#define HOLOGRAM_ERFINV_NEAR_F64                                                                   \
  0x1.a755e7c99ae87p+0, 0x1.ebd80d9b13e26p-3, -0x1.8b6c33115069bp-8, -0x1.845769484efedp-11,       \
      0x1.879c2a21a0ba3p-13, -0x1.d1d1f7b8c612bp-17, -0x1.6e8a54915df63p-20,                       \
      0x1.c6b4f5d71133ap-22, -0x1.f36cc37f0b705p-26, -0x1.1a9e395402808p-28,                       \
      0x1.20f3e68a2cbbdp-30, -0x1.dc583d01f5862p-35, -0x1.c86ee34d2382fp-37,                       \
      0x1.72a26c45037a8p-39, -0x1.71558cf1b767dp-44, -0x1.6d381a52ec5afp-45,                       \
      0x1.e2ae3594c45e3p-48, 0x1.86de5a7a5a2bep-56, -0x1.3e3fe2b536dd4p-53, 0x1.9b2da5fbc3c6ep-57, \
      0x1.b8007d52fada4p-60, -0x1.8d2598da7443cp-63, -0x1.1b4c0d69433dp-67
#define HOLOGRAM_ERFINV_FAR_F64                                                                    \
  0x1.8abcc380d5a48p+1, 0x1.0158a6d641d2cp+0, 0x1.5ffcfe5b65c5ap-8, -0x1.ebadabb830c22p-9,         \
      0x1.468eecab45d3bp-9, -0x1.ba92413e0d543p-10, 0x1.f3cc54140b8bdp-11, -0x1.7448a7c9321b9p-12, \
      0x1.932e7b8bfa286p-16, 0x1.1e684dbdb5e5ap-14, -0x1.8cf2e959e67b7p-15, 0x1.a2984b1857eb2p-17, \
      0x1.8903d1b95c9c7p-19, -0x1.0d51e8028c757p-18, 0x1.9164d6c5bc61ep-20, 0x1.29382122aa976p-26, \
      -0x1.20b8d7cc7ebc1p-22, 0x1.87d59b737c7ap-24
#define HOLOGRAM_ERFINV_FARTHEST_F64                                                          \
  0x1.3664ddd1ad7fbp+2, 0x1.02a30d1fba0aep+0, -0x1.22ea5df3af2e1p-13, -0x1.c2f36a82c33fdp-13, \
      0x1.3ebf4f47dfa7ep-14, -0x1.4a349c1c4be17p-16, 0x1.2fbcdb9ccd7fbp-18,                   \
      -0x1.0a8c0cec8616cp-20, 0x1.ebefb5efa0355p-23, -0x1.22fee86497102p-24,                  \
      0x1.f225a3b61a674p-26, -0x1.00245c214f59ap-26, 0x1.0bd4e78bdbc72p-27,                   \
      -0x1.069b70dafdd71p-28, 0x1.805011c646a48p-30, -0x1.101cc4f64cd8cp-32

// digamma(x) = log(x) - 1 / (2 x) - z p(z) for large x and z = 1 / x^2: the Bernoulli numbers
// B(2k) / (2k).
#define HOLOGRAM_DIGAMMA_SERIES \
  1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12, -3617.0 / 8160

// exp(r) = 1 + r + r^2 p(r) for |r| up to log(2) / 2. log1p(e) = e + e^2 p(e) for e of 0 to 1.
#define HOLOGRAM_EXP_F32 \
  0x1.fffffcp-2f, 0x1.55548cp-3f, 0x1.55585ap-5f, 0x1.123d5ep-7f, 0x1.6ab6fap-10f
#define HOLOGRAM_LOG1P_F32                                                          \
  -0x1.ffffd2p-2f, 0x1.554ddp-2f, -0x1.ff23e6p-3f, 0x1.934b54p-3f, -0x1.3a435ep-3f, \
      0x1.b4ae0cp-4f, -0x1.d6b0ap-5f, 0x1.4917fp-6f, -0x1.af4a22p-9f

// (t + 4) exp(t^2 / 2) P(N > t) = p(q - 0.5) for t >= 0 and q = t / (t + 4): the smooth part of the
// normal tail. A centre towards the far end lets most terms agree in sign.
#define HOLOGRAM_MILLS_F32                                                         \
  0x1.82b4bcp-1f, -0x1.373e38p+0f, 0x1.8c6d72p+0f, -0x1.7e002cp+0f, 0x1.eee37p-1f, \
      -0x1.ecfb76p-3f, -0x1.cfddap-3f, 0x1.97b72cp-3f, 0x1.b76b08p-5f, -0x1.cbb45p-5f
