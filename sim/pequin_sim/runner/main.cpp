// The simulation's main program: a Verilator model driven by cocotb through VPI.
//
// A time step runs as follows. Timed callbacks come first (cocotb's clock is one). What they put
// is applied, and callbacks on value changes run before the model is evaluated: a coroutine that
// waits for a clock edge therefore sees the registers' values from before the edge, and what it
// drives is applied after the edge. Evaluation repeats until nothing is driven any more; then
// come the read-only callbacks and the waveform. The model is not evaluated where nothing has
// been driven, which saves half of the evaluations of an idle clock.
//
// PEQUIN_CLOCK is the name of the model's clock port, when it has one.
//
// Plusargs: +pequin.waves=FILE writes a waveform (of a model built with tracing), from time
// +pequin.waves.from=T to before +pequin.waves.to=T, in time units, of the instances below
// +pequin.waves.scope=PATH.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

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
    bool wanted() const { return !m_path.empty(); }
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
    bool wanted() const { return false; }
    void sample() {}
    void close() {}
#endif
};

// The design's clock, toggled by this program. cocotb's own clock registers a VPI callback for
// every edge, which costs about a microsecond per clock. This one is an event like any timed
// callback: the callbacks due at its time come first, then the edge.
class OwnClock final {
    uint64_t m_half = 0;
    uint64_t m_next = kNever;
    bool m_changed = false;  // the model has not been evaluated since

public:
    uint64_t next() const { return m_next; }
    bool take_change() { return std::exchange(m_changed, false); }
    void start(Vtop& top, uint64_t now, uint64_t half) {
        m_half = half;
        m_next = now + half;
        drive(top, false);
    }
    void stop() { m_next = kNever; }
    void toggle(Vtop& top) {
        m_next += m_half;
        drive(top, !level(top));
    }
#ifdef PEQUIN_CLOCK
    static bool exists() { return true; }
    static bool level(const Vtop& top) { return top.PEQUIN_CLOCK; }
    void drive(Vtop& top, bool value) {
        top.PEQUIN_CLOCK = value;
        m_changed = true;
    }
#else
    static bool exists() { return false; }
    static bool level(const Vtop&) { return false; }
    void drive(Vtop&, bool) {}
#endif
};

class Simulation final {
    VerilatedContext& m_context;
    Vtop& m_top;
    Waves m_waves;
    OwnClock m_clock;
    bool m_called = false;  // a callback has run in this time step

    void call(uint32_t reason) { m_called |= VerilatedVpi::callCbs(reason); }
    void call_value_callbacks() {
        while (VerilatedVpi::callValueCbs()) m_called = true;
    }
    void apply_puts() {
        VerilatedVpi::doInertialPuts();
        call_value_callbacks();
    }
    bool changed() {
        const bool by_clock = m_clock.take_change();
        return VerilatedVpi::evalNeeded() || by_clock;
    }
    void settle() {
        apply_puts();
        do {
            while (changed()) {
                VerilatedVpi::clearEvalNeeded();
                m_top.eval_step();
                apply_puts();
            }
            call(cbReadWriteSynch);
            apply_puts();
        } while (VerilatedVpi::evalNeeded());
        m_top.eval_end_step();
        call(cbReadOnlySynch);
        m_waves.sample();
    }
    // Nothing watches the design until `deadline`: only the clock moves. That is so after a time
    // step without any callback, when none waits for a change of value either.
    void run_clock_alone(uint64_t deadline) {
        if (m_called || m_waves.wanted() || VerilatedVpi::hasCbs(cbValueChange)) return;
        while (m_clock.next() < deadline && !m_context.gotFinish()) {
            m_context.time(m_clock.next());
            m_clock.toggle(m_top);
            m_top.eval();
        }
        m_clock.take_change();
    }

public:
    Simulation(VerilatedContext& context, Vtop& top)
        : m_context{context}, m_top{top}, m_waves{context, top} {}
    bool start_clock(uint64_t half) {
        if (!OwnClock::exists()) return false;
        m_clock.start(m_top, m_context.time(), half);
        return true;
    }
    void stop_clock() { m_clock.stop(); }
    void run() {
        VerilatedVpi::callCbs(cbStartOfSimulation);
        call_value_callbacks();
        // The first evaluation runs initial blocks and settles combinational logic.
        m_top.eval_step();
        settle();
        while (!m_context.gotFinish()) {
            run_clock_alone(VerilatedVpi::cbNextDeadline());
            const uint64_t next = std::min(VerilatedVpi::cbNextDeadline(), m_clock.next());
            if (next == kNever || m_context.gotFinish()) break;
            m_called = false;
            m_context.time(next);
            call(cbNextSimTime);
            call_value_callbacks();
            call(cbAfterDelay);
            if (m_clock.next() == next) m_clock.toggle(m_top);
            settle();
        }
        m_top.final();
        VerilatedVpi::callCbs(cbEndOfSimulation);
        m_waves.close();
    }
};

Simulation* simulation = nullptr;

}  // namespace

// The testbench calls these two (pequin_tb.job): start toggling the clock, low first, and stop.
extern "C" int pequin_clock_start(uint64_t half_period) {
    return simulation && simulation->start_clock(half_period);
}
extern "C" void pequin_clock_stop() {
    if (simulation) simulation->stop_clock();
}

int main(int argc, char** argv) {
    const std::unique_ptr<VerilatedContext> context{new VerilatedContext};
    context->commandArgs(argc, argv);
    context->fatalOnVpiError(false);
    const std::unique_ptr<Vtop> top{new Vtop{context.get(), ""}};
    const std::unique_ptr<Simulation> owner{new Simulation{*context, *top}};
    simulation = owner.get();
    vlog_startup_routines_bootstrap();
    owner->run();
    return context->errorCount() > 0 ? 1 : 0;
}
