// An activation of the BatchNorm of a (rows, channels) matrix, one range of rows at a time.
//
// Forward and backward are two passes each, with sums over all rows between them. What lies between norm and activation
// is nowhere kept: both passes of the backward compute it again from x, which costs less than to fetch it.

// The mean of x over the rows and the sum of squared deviations from it. Values are taken relative to the first row's:
// no digits are lost where the mean is large against the spread.
void moments(const BatchNormAct& given, RowRange range, float* mean, float* squares) {
    const BatchNormAct job = given;
    const float* origin = job.x + range.first * job.channels;
    sum_over_rows(range, job.channels, mean, squares, [&](const auto& part, int64_t at, const auto& add) FILTERCOV_HERE {
        const auto value = part.load(job.x + at) - part.load(origin);
        add(value, value * value);
    });
    const float count = static_cast<float>(range.last - range.first);
    for_parts(job.channels, [&](const auto& part) FILTERCOV_HERE {
        const auto sum = part.load(mean), offset = sum / count;
        part.store(mean, part.load(origin) + offset);
        part.store(squares, part.load(squares) - offset * sum);
    });
}

// out = activation((x - mean) * scale + bias)
void normalise_act(const BatchNormAct& given, RowRange range) {
    const BatchNormAct job = given;
    with_activation(job.activation, [&](auto activation) FILTERCOV_HERE {
        for_rows(range, job.channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
            const auto centred = part.load(job.x + at) - part.load(job.mean);
            part.store(job.out + at, activation.value(centred * part.load(job.scale) + part.load(job.bias)));
        });
    });
}

// The sums over the rows of the gradient of what enters the activation, and of that times x - mean.
void act_gradient_sums(const BatchNormAct& given, RowRange range, float* sums, float* weighted) {
    const BatchNormAct job = given;
    with_activation(job.activation, [&](auto activation) FILTERCOV_HERE {
        sum_over_rows(range, job.channels, sums, weighted, [&](const auto& part, int64_t at, const auto& add) FILTERCOV_HERE {
            const auto centred = part.load(job.x + at) - part.load(job.mean);
            const auto entered = centred * part.load(job.scale) + part.load(job.bias);
            const auto grad = activation.gradient(part.load(job.grad_y + at), entered);
            add(grad, grad * centred);
        });
    });
}

// out = scale * grad - shift - tilt * (x - mean), where grad is the gradient of what enters the activation: the gradient
// of x, if per channel shift is the mean over all rows of scale * grad and tilt that of scale * grad * (x - mean) divided
// by the variance.
void act_gradient(const BatchNormAct& given, RowRange range) {
    const BatchNormAct job = given;
    with_activation(job.activation, [&](auto activation) FILTERCOV_HERE {
        for_rows(range, job.channels, [&](const auto& part, int64_t at) FILTERCOV_HERE {
            const auto centred = part.load(job.x + at) - part.load(job.mean), scale = part.load(job.scale);
            const auto grad = activation.gradient(part.load(job.grad_y + at), centred * scale + part.load(job.bias));
            part.store(job.out + at, grad * scale - part.load(job.shift) - centred * part.load(job.tilt));
        });
    });
}
