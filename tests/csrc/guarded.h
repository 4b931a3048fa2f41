// What the test programs share: random numbers, failures, buffers between guard bytes.
#pragma once

#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace {

std::mt19937 random_engine(0);

int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_engine); }

int failures = 0;

void fail(const std::string& what) {
    ++failures;
    std::printf("FAILED: %s\n", what.c_str());
}

// Floats between two runs of guard bytes, deliberately on no boundary wider than a float's own.
class Guarded {
  public:
    explicit Guarded(int64_t count) : count_(count), bytes_(2 * kGuard + sizeof(float) * count, kMark) {}

    float* data() { return reinterpret_cast<float*>(bytes_.data() + kGuard); }
    float& operator[](int64_t i) { return data()[i]; }
    int64_t size() const { return count_; }

    bool intact() const {
        for (size_t i = 0; i < kGuard; ++i) {
            if (bytes_[i] != kMark || bytes_[bytes_.size() - 1 - i] != kMark) return false;
        }
        return true;
    }

  private:
    static constexpr size_t kGuard = 68;
    static constexpr unsigned char kMark = 0xA5;
    int64_t count_;
    std::vector<unsigned char> bytes_;
};

}  // namespace
