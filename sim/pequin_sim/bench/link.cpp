// A packet file played on a model by C++ alone, without VPI callbacks and without Python: the
// yardstick for testbenches that drive packets.
//
// Plusargs: those of the model's mailbox, and +clocks=N, the longest run. Prints the clocks after
// reset until `done` and the time they took (s).
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

constexpr int kResetClocks = 2;

uint64_t plusarg(VerilatedContext& context, const std::string& name, uint64_t otherwise) {
    const std::string match = context.commandArgsPlusMatch((name + "=").c_str());
    if (match.empty()) return otherwise;
    return std::strtoull(match.c_str() + name.size() + 2, nullptr, 10);
}

void run_clock(VerilatedContext& context, Vtop& top) {
    top.clk = 1;
    context.timeInc(1);
    top.eval();
    top.clk = 0;
    context.timeInc(1);
    top.eval();
}

}  // namespace

int main(int argc, char** argv) {
    const std::unique_ptr<VerilatedContext> context{new VerilatedContext};
    context->commandArgs(argc, argv);
    const std::unique_ptr<Vtop> top{new Vtop{context.get(), ""}};
    const uint64_t limit = plusarg(*context, "clocks", 1000000);

    top->clk = 0;
    top->rst = 1;
    top->eval();
    for (int clock = 0; clock < kResetClocks; ++clock) run_clock(*context, *top);
    top->rst = 0;
    uint64_t clocks = 0;
    const auto begin = std::chrono::steady_clock::now();
    while (!top->done && clocks < limit) {
        run_clock(*context, *top);
        ++clocks;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    const bool done = top->done;
    top->final();
    std::printf("%llu %.6f\n", static_cast<unsigned long long>(clocks), taken.count());
    return done ? 0 : 1;
}
