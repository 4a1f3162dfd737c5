// The simulation's main program: a Verilator model driven by cocotb through VPI.
//
// A time step runs as follows. Timed callbacks come first (cocotb's clock is one). What they put
// is applied, and callbacks on value changes run before the model is evaluated: a coroutine that
// waits for a clock edge therefore sees the registers' values from before the edge, and what it
// drives is applied after the edge. Evaluation repeats until nothing is driven any more; then
// come the read-only callbacks and the waveform. The model is not evaluated where nothing has
// been driven, which saves half of the evaluations of an idle clock.
//
// Plusargs: +pequin.waves=FILE writes a waveform (of a model built with tracing), from time
// +pequin.waves.from=T to before +pequin.waves.to=T, in time units, of the instances below
// +pequin.waves.scope=PATH.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "Vtop.h"
#include "verilated.h"
#include "verilated_vpi.h"

#ifndef VM_TRACE_FST
#define VM_TRACE_FST 0
#endif
#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#elif VM_TRACE
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif

extern "C" void vlog_startup_routines_bootstrap();

namespace {

constexpr uint64_t kNever = ~uint64_t{0};

std::string plusarg(VerilatedContext& context, const std::string& name) {
    const std::string match = context.commandArgsPlusMatch((name + "=").c_str());
    return match.empty() ? match : match.substr(name.size() + 2);
}

// A waveform file that is open only inside its window of time.
class Waves final {
#if VM_TRACE
    VerilatedContext& m_context;
    Vtop& m_top;
    Trace m_trace;
    const std::string m_path;
    uint64_t m_from = 0;
    uint64_t m_to = kNever;
    bool m_open = false;

    uint64_t bound(const char* name, uint64_t otherwise) {
        const std::string text = plusarg(m_context, name);
        return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
    }

public:
    Waves(VerilatedContext& context, Vtop& top)
        : m_context{context}, m_top{top}, m_path{plusarg(context, "pequin.waves")} {
        if (m_path.empty()) return;
        context.traceEverOn(true);
        m_from = bound("pequin.waves.from", 0);
        m_to = bound("pequin.waves.to", kNever);
        const std::string scope = plusarg(context, "pequin.waves.scope");
        // A depth of 0 would mean everything, whatever the scope.
        if (!scope.empty()) m_trace.dumpvars(1000, scope);
        top.trace(&m_trace, 99);
    }
    void sample() {
        if (m_path.empty()) return;
        const uint64_t now = m_context.time();
        if (now < m_from || now >= m_to) {
            if (m_open && now >= m_to) close();
            return;
        }
        if (!m_open) {
            m_trace.open(m_path.c_str());
            m_open = true;
        }
        m_trace.dump(now);
    }
    void close() {
        if (!m_open) return;
        m_trace.close();
        m_open = false;
    }
#else
public:
    Waves(VerilatedContext&, Vtop&) {}
    void sample() {}
    void close() {}
#endif
};

void call_value_callbacks() {
    while (VerilatedVpi::callValueCbs()) {}
}

void apply_puts() {
    VerilatedVpi::doInertialPuts();
    call_value_callbacks();
}

void run_time_step(Vtop& top) {
    apply_puts();
    do {
        while (VerilatedVpi::evalNeeded()) {
            VerilatedVpi::clearEvalNeeded();
            top.eval_step();
            apply_puts();
        }
        VerilatedVpi::callCbs(cbReadWriteSynch);
        apply_puts();
    } while (VerilatedVpi::evalNeeded());
}

}  // namespace

int main(int argc, char** argv) {
    const std::unique_ptr<VerilatedContext> context{new VerilatedContext};
    context->commandArgs(argc, argv);
    context->fatalOnVpiError(false);
    const std::unique_ptr<Vtop> top{new Vtop{context.get(), ""}};
    Waves waves{*context, *top};

    vlog_startup_routines_bootstrap();
    VerilatedVpi::callCbs(cbStartOfSimulation);
    call_value_callbacks();

    // The first evaluation runs initial blocks and settles combinational logic.
    top->eval_step();
    while (!context->gotFinish()) {
        run_time_step(*top);
        top->eval_end_step();
        VerilatedVpi::callCbs(cbReadOnlySynch);
        waves.sample();

        const uint64_t next = VerilatedVpi::cbNextDeadline();
        if (next == kNever) break;
        context->time(next);
        VerilatedVpi::callCbs(cbNextSimTime);
        call_value_callbacks();
        VerilatedVpi::callTimedCbs();
    }

    top->final();
    VerilatedVpi::callCbs(cbEndOfSimulation);
    waves.close();
    return context->errorCount() > 0 ? 1 : 0;
}
