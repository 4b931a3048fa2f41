// BatchNorm of GELU over a (rows, channels) matrix, one range of rows at a time.
//
// Forward and backward are two passes each, with sums over all rows between them. What the first has computed of the
// normal distribution it leaves where the second will write its result: to fetch that costs less than to compute it
// again, and nothing but x need be kept from forward to backward.

void sum_rows(const float* matrix, int64_t channels, RowRange range, float* sums) {
    for_parts(channels, [&](const auto& part) FILTERCOV_HERE { part.store(sums, {}); });
    for_rows(range, channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        part.store(sums, part.load(sums) + part.load(matrix + at));
    });
}

// out = GELU(x); its mean over the rows and the sum of squared deviations from it. Values are taken relative to the
// first row's, kept in `origin`: no digits are lost where the mean is large against the spread.
void gelu_moments(const GeluBatchNorm& given, RowRange range, float* mean, float* squares, float* origin) {
    const GeluBatchNorm job = given;
    for_parts(job.channels, [&](const auto& part) FILTERCOV_HERE {
        const auto x = part.load(job.x + range.first * job.channels);
        part.store(origin, x * normal_distribution(x));
        part.store(mean, {});
        part.store(squares, {});
    });
    for_rows(range, job.channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        const auto x = part.load(job.x + at), activation = x * normal_distribution(x);
        const auto value = activation - part.load(origin);
        part.store(job.out + at, activation);
        part.store(mean, part.load(mean) + value);
        part.store(squares, part.load(squares) + value * value);
    });
    const float count = static_cast<float>(range.last - range.first);
    for_parts(job.channels, [&](const auto& part) FILTERCOV_HERE {
        const auto sum = part.load(mean), offset = sum / count;
        part.store(mean, part.load(origin) + offset);
        part.store(squares, part.load(squares) - offset * sum);
    });
}

// out, which is GELU(x), becomes (out - mean) * scale + shift, and that plus the residual if there is one.
void gelu_normalise(const GeluBatchNorm& given, RowRange range) {
    const GeluBatchNorm job = given;
    for_rows(range, job.channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        const auto centred = part.load(job.out + at) - part.load(job.mean);
        auto y = centred * part.load(job.scale) + part.load(job.shift);
        if (job.residual != nullptr) y = y + part.load(job.residual + at);
        part.store(job.out + at, y);
    });
}

// out = P(x), the normal distribution function, and the sums over the rows of grad_y and of grad_y times the normalised
// GELU(x): the gradients of bias and weight.
void gelu_gradient_sums(const GeluBatchNorm& given, RowRange range, float* sum_grad, float* sum_grad_normal) {
    const GeluBatchNorm job = given;
    for_parts(job.channels, [&](const auto& part) FILTERCOV_HERE {
        part.store(sum_grad, {});
        part.store(sum_grad_normal, {});
    });
    for_rows(range, job.channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        const auto x = part.load(job.x + at), distribution = normal_distribution(x);
        part.store(job.out + at, distribution);
        const auto normalised = (x * distribution - part.load(job.mean)) * part.load(job.inverse_std);
        const auto grad = part.load(job.grad_y + at);
        part.store(sum_grad, part.load(sum_grad) + grad);
        part.store(sum_grad_normal, part.load(sum_grad_normal) + grad * normalised);
    });
}

// out, which is P(x), becomes GELU'(x) * (scale * grad_y - shift - tilt * normalised GELU(x)): the gradient of x, where
// per channel scale is weight / std, shift the mean over all rows of scale * grad_y, and tilt that of scale * grad_y *
// normalised GELU(x).
void gelu_gradient(const GeluBatchNorm& given, RowRange range) {
    const GeluBatchNorm job = given;
    for_rows(range, job.channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
        const auto x = part.load(job.x + at), distribution = part.load(job.out + at);
        const auto normalised = (x * distribution - part.load(job.mean)) * part.load(job.inverse_std);
        const auto scaled = part.load(job.grad_y + at) * part.load(job.scale);
        const auto grad = scaled - part.load(job.shift) - normalised * part.load(job.tilt);
        part.store(job.out + at, grad * gelu_slope(x, distribution));
    });
}
