// The yardstick: the same model toggled by C++ alone, without VPI callbacks and without Python.
//
// Plusargs: +clocks=N clocks in each repetition, +repeats=R repetitions. Prints the clocks per
// second of each repetition, one per line.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "Vtop.h"
#include "verilated.h"
#include "verilated_vpi.h"

namespace {

uint64_t plusarg(VerilatedContext& context, const std::string& name, uint64_t otherwise) {
    const std::string match = context.commandArgsPlusMatch((name + "=").c_str());
    if (match.empty()) return otherwise;
    return std::strtoull(match.c_str() + name.size() + 2, nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
    const std::unique_ptr<VerilatedContext> context{new VerilatedContext};
    context->commandArgs(argc, argv);
    const std::unique_ptr<Vtop> top{new Vtop{context.get(), ""}};
    const uint64_t clocks = plusarg(*context, "clocks", 1000);
    const uint64_t repeats = plusarg(*context, "repeats", 1);

    uint64_t time = 0;
    for (uint64_t repeat = 0; repeat <= repeats; ++repeat) {
        // Repetition 0 warms up the caches and is not reported.
        const uint64_t count = repeat ? clocks : clocks / 10 + 1;
        const auto begin = std::chrono::steady_clock::now();
        for (uint64_t clock = 0; clock < count; ++clock) {
            top->clk = 1;
            context->time(++time);
            top->eval();
            top->clk = 0;
            context->time(++time);
            top->eval();
        }
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        if (repeat) std::printf("%.1f\n", count / taken.count());
    }
    top->final();
    return 0;
}
