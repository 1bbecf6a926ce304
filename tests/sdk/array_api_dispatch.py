# SPDX-License-Identifier: MIT
"""SciPy's and scikit-learn's functions on tensors; test_array_libraries.py runs this file.

Both look at SCIPY_ARRAY_API when they are imported, so that this needs a process of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hologram as hg

scipy = pytest.importorskip("scipy", minversion="1.17")
from scipy import (  # noqa: E402
    cluster,
    differentiate,
    fft,
    integrate,
    interpolate,
    linalg,
    ndimage,
    optimize,
    signal,
    special,
    stats,
)  # fmt: skip
from scipy.optimize import elementwise  # noqa: E402
from scipy.spatial.transform import Rotation  # noqa: E402

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 20))
P = np.abs(X) + 0.1  # positive
Q = P / (P.max() + 1)  # in (0, 1)
B = X > 0
LABELS = np.repeat(np.arange(4), 30).reshape(6, 20).astype(np.int32)
T = np.linspace(0, 1, 20)
Function = Callable[..., Any]


def namespace(x: Any) -> Any:
    return hg if isinstance(x, hg.Tensor) else np


def signs(x: Any) -> Any:
    return namespace(x).sign(x)


def window(x: Any) -> Any:
    return namespace(x).ones((3, 3))


def sos_of(x: Any) -> Any:
    """Return a filter of one section, as an array of the kind that `x` is."""
    return namespace(x).asarray([[0.2, 0.3, 0.2, 1.0, -0.4, 0.1]])


# Each is given SciPy's operands by name as arrays of one kind, and gives arrays of that kind.
SCIPY: dict[str, Function] = {
    "special errors": lambda X, P, Q, **_: [
        special.erf(X), special.erfc(X), special.erfinv(Q), special.ndtr(X), special.ndtri(Q),
        special.log_ndtr(X), special.expit(X), special.logit(Q), special.entr(Q),
    ],
    "special gamma": lambda X, P, Q, **_: [
        special.gammaln(P), special.gammainc(P, Q), special.gammaincc(P, Q), special.psi(P),
        special.beta(P, Q), special.betaln(P, Q), special.betainc(P, P, Q), special.poch(P, Q),
        special.polygamma(1, P), special.multigammaln(P + 2, 2), special.binom(P, Q),
    ],
    "special bessel": lambda X, P, **_: [
        special.i0(X), special.i1e(X), special.j0(X), special.y1(P), special.k0(P), special.k1e(P),
    ],
    "special pairs": lambda P, Q, **_: [
        special.xlogy(P, Q), special.xlog1py(P, Q), special.rel_entr(P, Q), special.kl_div(P, Q),
        special.zeta(P + 1, P), special.boxcox(P, Q), special.huber(P, Q), special.hyp1f1(P, Q, Q),
    ],
    "special sums": lambda X, **_: [
        special.logsumexp(X), special.logsumexp(X, axis=0, keepdims=True),
        special.softmax(X, axis=1), special.log_softmax(X, axis=1),
    ],
    "stats of one sample": lambda X, P, **_: [
        stats.zscore(X, axis=1), stats.skew(X, axis=1), stats.kurtosis(X), stats.moment(X, 3),
        stats.variation(P), stats.sem(X), stats.gmean(P), stats.hmean(P), stats.pmean(P, 2),
        stats.iqr(X), stats.kstat(X[0], 2), stats.median_abs_deviation(X), stats.tmean(X),
        stats.tvar(X), stats.trim_mean(X, 0.1), stats.describe(X), stats.entropy(P),
        stats.differential_entropy(X, axis=1), stats.rankdata(X, axis=1), stats.gstd(P),
        stats.circmean(X), stats.circstd(X), stats.boxcox_llf(0.5, P[0]), stats.mode(signs(X)),
        stats.quantile(X, 0.3, axis=1), stats.sigmaclip(X)[0], stats.directional_stats(X),
    ],
    "stats tests": lambda X, P, **_: [
        stats.ttest_1samp(X, 0.0), stats.ttest_ind(X[0], X[1]), stats.ttest_rel(X[0], X[1]),
        stats.pearsonr(X[0], X[1]), stats.f_oneway(X[0], X[1]), stats.kruskal(X[0], X[1]),
        stats.mannwhitneyu(X[0], X[1]), stats.wilcoxon(X[0], X[1]), stats.normaltest(X, axis=1),
        stats.jarque_bera(X[0]), stats.bartlett(X[0], X[1]), stats.levene(X[0], X[1]),
        stats.chisquare(P[0], P[0]), stats.power_divergence(P[0], P[0]), stats.mood(X[0], X[1]),
        stats.ks_1samp(X[0], special.ndtr), stats.brunnermunzel(X[0], X[1]),
        stats.friedmanchisquare(X[0], X[1], X[2]), stats.cramervonmises(X[0], special.ndtr),
        stats.combine_pvalues(P[0] / 10), stats.false_discovery_control(P[0] / 10),
    ],
    "stats resampling": lambda X, **_: [
        stats.bootstrap((X[0],), namespace(X).mean, n_resamples=20, rng=1,
                        method="percentile").confidence_interval,
        stats.permutation_test((X[0], X[1]), lambda x, y, axis: x.mean(axis) - y.mean(axis),
                               n_resamples=20, rng=1).pvalue,
    ],
    "signal filters": lambda X, T, **_: [
        signal.lfilter(T[1:3], T[1:4] + 1, X), signal.sosfilt(sos_of(T), X),
        signal.sosfiltfilt(sos_of(T), X), signal.filtfilt(T[1:3], T[1:3] + 1, X),
        signal.savgol_filter(X, 5, 2), signal.medfilt(X), signal.wiener(X),
        signal.upfirdn(T[1:4], X, 2), signal.order_filter(X, window(X), 2),
    ],
    "signal products": lambda X, T, **_: [
        signal.convolve(X[0], T), signal.fftconvolve(X, X), signal.oaconvolve(X[0], T),
        signal.correlate(X[0], T), signal.convolve2d(X, X[:2, :2]), signal.correlate2d(X, X[:2]),
        signal.detrend(X), signal.hilbert(X), signal.envelope(X[0]), signal.resample(X[0], 30),
        signal.resample_poly(X[0], 3, 2), signal.deconvolve(X[0], T[1:4]),
        signal.vectorstrength(T, 3.0),
    ],
    "signal responses": lambda T, **_: [
        signal.freqz(T[1:4], T[2:5], worN=16), signal.group_delay((T[1:4], T[2:5]), w=8),
        signal.tf2zpk(T[1:4], T[2:5]), signal.tf2sos(T[1:4], T[2:5]), signal.cspline1d(T),
        signal.sosfreqz(sos_of(T), worN=16), signal.bilinear(T[1:4], T[2:5]),
    ],
    "fft": lambda X, **_: [
        fft.fft(X), fft.ifft(X), fft.rfft(X, axis=0), fft.irfft(X), fft.fft2(X), fft.fftn(X),
        fft.hfft(X), fft.ihfft(X), fft.rfftn(X), fft.fftshift(X), fft.dct(X), fft.dst(X, axis=0),
        fft.dctn(X), fft.idct(X), fft.fht(X, 0.1, 0.0),
    ],
    "ndimage filters": lambda X, **_: [
        ndimage.gaussian_filter(X, 1), ndimage.uniform_filter(X, 3), ndimage.median_filter(X, 3),
        ndimage.sobel(X), ndimage.laplace(X), ndimage.convolve(X, X[:3, :3]),
        ndimage.maximum_filter(X, 3), ndimage.gaussian_gradient_magnitude(X, 1),
        ndimage.percentile_filter(X, 30, 3), ndimage.correlate1d(X, X[0, :3]),
    ],
    "ndimage places": lambda X, **_: [
        ndimage.zoom(X, 2), ndimage.rotate(X, 30), ndimage.shift(X, 1.5),
        ndimage.affine_transform(X, X[:2, :2]), ndimage.spline_filter(X),
        ndimage.map_coordinates(X, X[:2] + 2), ndimage.fourier_gaussian(fft.fft2(X), 1),
    ],
    "ndimage shapes": lambda X, B, LABELS, **_: [
        ndimage.label(B)[0], ndimage.sum(X, LABELS, LABELS[:, 0]), ndimage.mean(X, LABELS, 2),
        ndimage.binary_erosion(B), ndimage.binary_fill_holes(B), ndimage.grey_closing(X, size=3),
        ndimage.distance_transform_edt(B), ndimage.white_tophat(X, size=3),
        ndimage.maximum(X, LABELS, LABELS[:, 0]), ndimage.variance(X, LABELS, 1),
    ],
    "integrate": lambda X, T, **_: [
        integrate.trapezoid(X, axis=1), integrate.cumulative_trapezoid(X, T),
        integrate.romb(X[:, :17]), integrate.cumulative_simpson(X),
        integrate.tanhsinh(lambda t: t * t, T[:3], T[1:4]).integral,
        integrate.cubature(lambda t: t[:, 0] ** 2, T[:1], T[5:6]).estimate,
    ],
    "interpolate": lambda X, T, **_: [
        interpolate.CubicSpline(T, X.T)(T + 0.01), interpolate.PchipInterpolator(T, X.T)(T),
        interpolate.Akima1DInterpolator(T, X.T)(T), interpolate.make_interp_spline(T, X.T)(T),
        interpolate.make_smoothing_spline(T, X[0])(T),
        interpolate.CubicHermiteSpline(T, X[0], X[1])(T),
        interpolate.RegularGridInterpolator((T, T), T[:, None] * T)(X[:, :2] * 0 + 0.3),
        interpolate.RBFInterpolator(X.T[:, :2], X[0])(X.T[:, :2] + 0.1),
        interpolate.BSpline(T, X[0, :16], 3)(T[5:9]),
    ],
    "optimize": lambda T, **_: [
        elementwise.find_root(lambda t: t - 0.3, (T[:3], T[:3] + 1)).x,
        elementwise.find_minimum(lambda t: (t - 2) ** 2, (T[:3], T[:3] + 1, T[:3] + 9)).x,
        optimize.rosen(T), optimize.rosen_der(T), optimize.rosen_hess(T),
    ],
    "differentiate": lambda T, **_: [
        differentiate.derivative(lambda t: t**3, T).df,
        differentiate.jacobian(lambda t: t**2, T[:3]).df,
        differentiate.hessian(lambda t: (t**2).sum(0), T[:3]).ddf,
    ],
    "cluster": lambda X, P, **_: [
        cluster.hierarchy.linkage(X), cluster.hierarchy.fcluster(cluster.hierarchy.linkage(X), 2),
        cluster.hierarchy.cophenet(cluster.hierarchy.linkage(X)),
        cluster.hierarchy.leaves_list(cluster.hierarchy.ward(X)),
        cluster.vq.whiten(X), cluster.vq.vq(X, X[:2]), cluster.vq.kmeans2(X, X[:2], minit="matrix"),
    ],
    "linalg": lambda X, **_: [
        linalg.block_diag(X, X[:2]), linalg.fiedler(X[0]), linalg.orthogonal_procrustes(X, X + 1),
    ],
    "rotations": lambda X, **_: [
        Rotation.from_quat(X[:, :4]).as_matrix(), Rotation.from_rotvec(X[:, :3]).as_euler("xyz"),
        (Rotation.from_quat(X[:, :4]) * Rotation.from_quat(X[:, 4:8])).apply(X[:, :3]),
        Rotation.from_quat(X[:, :4]).inv().magnitude(),
        Rotation.from_quat(X[:, :4]).mean().as_quat(),
    ],
}  # fmt: skip


def same(found: Any, expected: Any, tolerance: float = 1e-9) -> int:
    """Assert that tensors stand where arrays do, with their values; return how many."""
    if isinstance(expected, (np.ndarray, np.generic)):
        assert isinstance(found, hg.Tensor), type(found)
        assert found.dtype == expected.dtype
        scale = np.max(np.abs(expected), initial=0, where=np.isfinite(expected))
        np.testing.assert_allclose(
            found.numpy(), expected, rtol=tolerance, atol=tolerance * float(scale)
        )
        return 1
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        return sum(same(*pair, tolerance) for pair in zip(found, expected, strict=True))
    if hasattr(expected, "__dict__"):  # a result with names
        names = [name for name in vars(expected) if not name.startswith("_")]
        return sum(same(getattr(found, n), getattr(expected, n), tolerance) for n in names)
    assert found == expected or callable(expected) or expected != expected
    return 0


@pytest.mark.parametrize("name", SCIPY)
def test_scipy(name: str) -> None:
    arrays = {"X": X, "P": P, "Q": Q, "B": B, "LABELS": LABELS, "T": T}
    tensors = {key: hg.array(value) for key, value in arrays.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = SCIPY[name](**tensors), SCIPY[name](**arrays)
    assert same(found, expected) >= len(expected)


# --- scikit-learn ---------------------------------------------------------------------------------

sklearn = pytest.importorskip("sklearn", minversion="1.7")
from sklearn import (  # noqa: E402  # noqa: E402  # noqa: E402
    calibration,
    decomposition,
    discriminant_analysis,
    kernel_approximation,
    linear_model,
    metrics,
    mixture,
    model_selection,
    naive_bayes,
    pipeline,
    preprocessing,
)

DATA = RNG.standard_normal((60, 5)) @ RNG.standard_normal((5, 5)) + 1
TARGET = DATA @ RNG.standard_normal(5) + RNG.standard_normal(60) / 10
CLASSES = (np.median(TARGET) < TARGET).astype(np.int64) + (np.quantile(TARGET, 0.8) < TARGET)

TRANSFORMERS: dict[str, Any] = {
    "StandardScaler": preprocessing.StandardScaler(),
    "MinMaxScaler": preprocessing.MinMaxScaler(),
    "MaxAbsScaler": preprocessing.MaxAbsScaler(),
    "Normalizer": preprocessing.Normalizer(),
    "Binarizer": preprocessing.Binarizer(),
    "PolynomialFeatures": preprocessing.PolynomialFeatures(degree=3),
    "PCA full": decomposition.PCA(3, svd_solver="full", whiten=True),
    "PCA covariance": decomposition.PCA(3, svd_solver="covariance_eigh"),
    "PCA randomized": decomposition.PCA(
        2, svd_solver="randomized", power_iteration_normalizer="QR", random_state=0
    ),
    "KernelCenterer": pipeline.make_pipeline(
        preprocessing.FunctionTransformer(lambda x: x @ x.T), preprocessing.KernelCenterer()
    ),
    "Nystroem": kernel_approximation.Nystroem(kernel="linear", n_components=4, random_state=0),
    "Pipeline": pipeline.make_pipeline(
        preprocessing.StandardScaler(), decomposition.PCA(2, svd_solver="full")
    ),
}
PREDICTORS: dict[str, Any] = {
    "Ridge": linear_model.Ridge(solver="svd"),
    "RidgeCV": linear_model.RidgeCV(alphas=(0.1, 1.0)),
    "RidgeClassifier": linear_model.RidgeClassifier(solver="svd"),
    "RidgeClassifierCV": linear_model.RidgeClassifierCV(),
    "LogisticRegression": linear_model.LogisticRegression(solver="lbfgs"),
    "LinearDiscriminantAnalysis": discriminant_analysis.LinearDiscriminantAnalysis(),
    "GaussianNB": naive_bayes.GaussianNB(),
    "GaussianMixture": mixture.GaussianMixture(2, random_state=0, init_params="random"),
    "CalibratedClassifierCV": calibration.CalibratedClassifierCV(
        discriminant_analysis.LinearDiscriminantAnalysis(), method="temperature"
    ),
    "GridSearchCV": model_selection.GridSearchCV(
        linear_model.Ridge(solver="svd"), {"alpha": [0.1, 9.0]}
    ),
    "Pipeline": pipeline.make_pipeline(
        preprocessing.StandardScaler(),
        decomposition.PCA(3, svd_solver="full"),
        linear_model.Ridge(solver="svd"),
    ),
}
CLASSIFIERS = {
    "RidgeClassifier",
    "RidgeClassifierCV",
    "LogisticRegression",
    "LinearDiscriminantAnalysis",
    "GaussianNB",
    "CalibratedClassifierCV",
}
METRICS = [
    "accuracy_score",
    "f1_score",
    "precision_score",
    "recall_score",
    "confusion_matrix",
    "zero_one_loss",
    "jaccard_score",
    "hamming_loss",
    "balanced_accuracy_score",
    "mean_squared_error",
    "r2_score",
    "mean_absolute_error",
    "median_absolute_error",
    "max_error",
    "explained_variance_score",
    "d2_tweedie_score",
    "mean_pinball_loss",
    "root_mean_squared_error",
    "rand_score",
    "v_measure_score",
]
PAIRWISE = [
    "euclidean_distances",
    "cosine_similarity",
    "rbf_kernel",
    "polynomial_kernel",
    "linear_kernel",
    "laplacian_kernel",
    "manhattan_distances",
    "paired_cosine_distances",
    "additive_chi2_kernel",
]


@pytest.fixture
def dispatch() -> Any:
    with sklearn.config_context(array_api_dispatch=True):
        yield


def attributes(estimator: Any) -> dict[str, Any]:
    """Return what an estimator has learned: arrays under names that end in an underscore."""
    return {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and isinstance(value, (np.ndarray, hg.Tensor))
    }


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name: str, dispatch: Any) -> None:
    expected = sklearn.clone(TRANSFORMERS[name]).fit(DATA)
    found = sklearn.clone(TRANSFORMERS[name]).fit(hg.array(DATA))
    assert same(found.transform(hg.array(DATA)), expected.transform(DATA), 1e-7) == 1
    for key, value in attributes(expected).items():
        same(attributes(found)[key], value, 1e-7)
    if hasattr(expected, "inverse_transform"):
        back = found.inverse_transform(found.transform(hg.array(DATA)))
        same(back, expected.inverse_transform(expected.transform(DATA)), 1e-7)


@pytest.mark.parametrize("name", PREDICTORS)
def test_predictors(name: str, dispatch: Any) -> None:
    target = CLASSES if name in CLASSIFIERS else TARGET
    expected = sklearn.clone(PREDICTORS[name]).fit(DATA, target)
    found = sklearn.clone(PREDICTORS[name]).fit(hg.array(DATA), hg.array(target))
    for method in ("predict", "predict_proba", "decision_function", "score_samples"):
        if hasattr(expected, method):
            tensor = getattr(found, method)(hg.array(DATA))
            assert same(tensor, getattr(expected, method)(DATA), 1e-5) == 1
    if name != "GaussianMixture":
        score = found.score(hg.array(DATA), hg.array(target))
        assert float(score) == pytest.approx(expected.score(DATA, target), rel=1e-6)


@pytest.mark.parametrize("name", METRICS)
def test_metrics(name: str, dispatch: Any) -> None:
    metric = getattr(metrics, name)
    options = (
        {"average": "macro"}
        if name.split("_")[0] in ("f1", "precision", "recall", "jaccard")
        else {}
    )
    other = np.roll(CLASSES, 3)
    found = metric(hg.array(CLASSES), hg.array(other), **options)
    np.testing.assert_allclose(np.asarray(found), metric(CLASSES, other, **options), rtol=1e-12)


@pytest.mark.parametrize("name", PAIRWISE)
def test_distances_and_kernels(name: str, dispatch: Any) -> None:
    x = np.abs(DATA)
    function = getattr(metrics.pairwise, name)
    assert same(function(hg.array(x), hg.array(x) + 1), function(x, x + 1), 1e-7) == 1


def test_selection(dispatch: Any) -> None:
    parts = model_selection.train_test_split(hg.array(DATA), hg.array(TARGET), random_state=0)
    assert same(parts, model_selection.train_test_split(DATA, TARGET, random_state=0)) == 4
    ridge = linear_model.Ridge(solver="svd")
    found = model_selection.cross_val_predict(ridge, hg.array(DATA), hg.array(TARGET))
    assert same(found, model_selection.cross_val_predict(ridge, DATA, TARGET), 1e-7) == 1
    labels = preprocessing.LabelEncoder().fit_transform(hg.array(CLASSES * 3))
    assert same(labels, preprocessing.LabelEncoder().fit_transform(CLASSES * 3)) == 1
    rows = preprocessing.LabelBinarizer().fit_transform(hg.array(CLASSES))
    assert same(rows, preprocessing.LabelBinarizer().fit_transform(CLASSES)) == 1
