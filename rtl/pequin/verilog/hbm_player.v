// Simulation only: plays request files into an HBM channel, records what happens, and measures.
//
// One request file for each port, +port0=FILE and so on; a line is four hexadecimal numbers:
// write (0 or 1), beat address, length in beats, earliest clock. Files are read as they are played.
// Plusargs of the whole player (decimal):
//   +refresh=0|1|2  none, all-bank, per-bank       +broken=N     rule the controller breaks
//   +outstanding=N  requests in flight per port    +pause=N      of 256 clocks, streams that rest
//   +warm=N         clock at which counting starts +stop=N       clock at which the run ends
//   +hang=N         clocks without progress that end the run
//   +single=N +double=N  one of N read beats gets one or two bits inverted
//   +result=FILE +commands=FILE +log=FILE   what to write
module hbm_player #(
    parameter PORTS = 1,
    parameter CAUSES = 8,
    parameter EVENTS = 8
) (
    input  wire                 clk,
    input  wire                 rst,
    output wire [PORTS-1:0]     request_valid,
    input  wire [PORTS-1:0]     request_ready,
    output wire [PORTS*49-1:0]  request_payload,
    output wire [PORTS-1:0]     write_valid,
    input  wire [PORTS-1:0]     write_ready,
    output wire [PORTS*256-1:0] write_payload,
    input  wire [PORTS-1:0]     read_valid,
    output wire [PORTS-1:0]     read_ready,
    input  wire [PORTS*259-1:0] read_payload,
    input  wire [PORTS-1:0]     ack_valid,
    output wire [PORTS-1:0]     ack_ready,
    input  wire [PORTS*2-1:0]   ack_payload,
    input  wire [24:0]          row,
    input  wire [13:0]          column,
    input  wire                 beat_valid,
    output reg  [287:0]         flip,
    input  wire                 ecc_valid,
    input  wire [32:0]          ecc,
    input  wire [CAUSES*40-1:0] causes,
    input  wire [EVENTS*40-1:0] events,
    input  wire                 fault,
    input  wire                 late,
    output reg  [1:0]           refresh,
    output reg  [4:0]           broken,
    output reg                  done
);
    integer outstanding, pause, warm, stop, hang, single, double;
    integer log, commands;
    string path;
    initial begin
        done = 0; flip = 0; refresh = 0; broken = 0; log = 0; commands = 0;
        if (!$value$plusargs("refresh=%d", refresh)) refresh = 0;
        if (!$value$plusargs("broken=%d", broken)) broken = 0;
        if (!$value$plusargs("outstanding=%d", outstanding)) outstanding = 1024;
        if (!$value$plusargs("pause=%d", pause)) pause = 0;
        if (!$value$plusargs("warm=%d", warm)) warm = 0;
        if (!$value$plusargs("stop=%d", stop)) stop = 0;
        if (!$value$plusargs("hang=%d", hang)) hang = 20000;
        if (!$value$plusargs("single=%d", single)) single = 0;
        if (!$value$plusargs("double=%d", double)) double = 0;
        if ($value$plusargs("log=%s", path)) log = $fopen(path, "w");
        if ($value$plusargs("commands=%s", path)) commands = $fopen(path, "w");
    end

    reg [63:0] now = 0;
    wire [PORTS-1:0] finished;
    reg ending = 0;
    wire measuring = now >= warm && !ending;
    genvar q;
    generate
        for (q = 0; q < PORTS; q = q + 1) begin : port
            hbm_player_port #(.ID(q)) p (
                .clk(clk), .rst(rst), .now(now), .measuring(measuring),
                .outstanding(outstanding), .pause(pause), .log(log),
                .request_valid(request_valid[q]), .request_ready(request_ready[q]),
                .request_payload(request_payload[q*49 +: 49]),
                .write_valid(write_valid[q]), .write_ready(write_ready[q]),
                .write_payload(write_payload[q*256 +: 256]),
                .read_valid(read_valid[q]), .read_ready(read_ready[q]),
                .read_payload(read_payload[q*259 +: 259]),
                .ack_valid(ack_valid[q]), .ack_ready(ack_ready[q]),
                .ack_payload(ack_payload[q*2 +: 2]),
                .finished(finished[q]), .report(report), .result(result));
        end
    endgenerate

    // Command bus, and errors put on the read bus.
    reg [31:0] noise = 32'h12345678;
    integer singles = 0, doubles = 0;
    always @(posedge clk) begin
        if (commands != 0 && (row[2:0] != 0 || column[1:0] != 0))
            $fwrite(commands, "%0d %0d %0d %0d %0d %0d %0d %0d %0d\n", now,
                    row[2:0], row[5:3], row[8:6], row[24:9],
                    column[1:0], column[4:2], column[7:5], column[13:8]);
        if (log != 0 && ecc_valid)
            $fwrite(log, "E 0 %0d %0d %0h\n", now, ecc[0], ecc[32:1]);
        if (beat_valid && flip != 0) begin
            if ($countones(flip) == 1) singles <= singles + 1;
            else doubles <= doubles + 1;
        end
        noise <= {noise[30:0], 1'b0} ^ (noise[31] ? 32'h04C11DB7 : 0) ^ now[31:0] * 32'h9E3779B1;
        flip <= 0;
        if (single != 0 && (noise[15:0] % single) == 0)
            flip[noise[31:16] % 288] <= 1'b1;
        else if (double != 0 && (noise[15:0] % double) == 1) begin
            // Two bits of one 64-bit word, the second always another one.
            flip[noise[23:16] % 64 + 64 * noise[25:24]] <= 1'b1;
            flip[(noise[23:16] + 1 + noise[31:26] % 63) % 64 + 64 * noise[25:24]] <= 1'b1;
        end
    end

    // The end of the run.
    reg report = 0;
    integer result = 0, settle = 0, quiet = 0, i;
    reg [CAUSES*40-1:0] causes_warm, causes_end;
    reg [EVENTS*40-1:0] events_warm, events_end;
    reg [63:0] end_time = 0;
    reg hung = 0;
    wire progress = |(request_valid & request_ready) | |(write_valid & write_ready)
                  | |(read_valid & read_ready) | |(ack_valid & ack_ready);
    always @(posedge clk) if (!rst) begin
        now <= now + 1;
        quiet <= progress ? 0 : quiet + 1;
        if (now == warm) begin causes_warm <= causes; events_warm <= events; end
        if (!ending) begin
            if (&finished || (stop != 0 && now == stop) || quiet > hang) begin
                ending <= 1;
                hung <= quiet > hang;
                end_time <= now;
                causes_end <= causes;
                events_end <= events;
            end
        end else begin
            settle <= settle + 1;
            if (settle == 1500) begin
                if ($value$plusargs("result=%s", path)) begin
                    result = $fopen(path, "w");
                    $fwrite(result, "clocks %0d\nhung %0d\nfault %0d\nlate %0d\n", end_time, hung,
                            fault, late);
                    $fwrite(result, "singles %0d\ndoubles %0d\n", singles, doubles);
                    for (i = 0; i < CAUSES; i = i + 1)
                        $fwrite(result, "cause.%0d %0d\n", i,
                                causes_end[i*40 +: 40] - causes_warm[i*40 +: 40]);
                    for (i = 0; i < EVENTS; i = i + 1) begin
                        $fwrite(result, "event.%0d %0d\n", i,
                                events_end[i*40 +: 40] - events_warm[i*40 +: 40]);
                        $fwrite(result, "total.%0d %0d\n", i, events[i*40 +: 40]);
                    end
                end
            end
            report <= settle == 1500;
            if (settle == 1502) begin
                if (result != 0) $fclose(result);
                if (log != 0) $fclose(log);
                if (commands != 0) $fclose(commands);
            end
            if (settle == 1503) done <= 1;
        end
    end
endmodule

// One port of the player.
module hbm_player_port #(parameter ID = 0) (
    input  wire         clk,
    input  wire         rst,
    input  wire [63:0]  now,
    input  wire         measuring,
    input  wire [31:0]  outstanding,
    input  wire [31:0]  pause,
    input  wire [31:0]  log,
    output reg          request_valid,
    input  wire         request_ready,
    output reg  [48:0]  request_payload,
    output reg          write_valid,
    input  wire         write_ready,
    output reg  [255:0] write_payload,
    input  wire         read_valid,
    output wire         read_ready,
    input  wire [258:0] read_payload,
    input  wire         ack_valid,
    output wire         ack_ready,
    input  wire [1:0]   ack_payload,
    output wire         finished,
    input  wire         report,
    input  wire [31:0]  result
);
    localparam DEPTH = 16384, BINS = 16384;
    integer file, got, i;
    string path;
    reg        have, next_write;
    reg [31:0] next_address, next_length;
    reg [63:0] next_time;
    reg [31:0] flying;

    // Requests in flight: when they were offered, and the writes whose data is still to come.
    reg [63:0] read_offer [0:DEPTH-1];
    reg [63:0] write_offer [0:DEPTH-1];
    reg [31:0] write_address [0:DEPTH-1];
    reg [15:0] write_length [0:DEPTH-1];
    reg [13:0] read_head, read_tail, write_head, write_tail, data_head;
    reg [15:0] data_beat;
    reg [31:0] write_number;

    reg [63:0] beats_read, beats_written, latency_sum, latency_max, reads, last_time, errors;
    reg [63:0] measured_read, measured_written, ack_sum, acks, first_time;
    reg [31:0] tally [0:BINS-1];
    reg [31:0] rest;
    assign read_ready = rest[7:0] >= pause[7:0];
    assign ack_ready = rest[15:8] >= pause[7:0];
    assign finished = !have && !request_valid && flying == 0;

    function [255:0] pattern(input [31:0] address, input [31:0] number);
        integer j;
        reg [31:0] word;
        for (j = 0; j < 8; j = j + 1) begin
            word = address * 32'h9E3779B1 ^ number * 32'h85EBCA77;
            word = word + (j + 1) * 32'hC2B2AE3D + ID * 32'h10000001;
            pattern[32*j +: 32] = word ^ (word >> 15);
        end
    endfunction

    initial begin
        file = 0; have = 0; request_valid = 0; write_valid = 0; flying = 0;
        read_head = 0; read_tail = 0; write_head = 0; write_tail = 0; data_head = 0;
        data_beat = 0; write_number = 0; beats_read = 0; beats_written = 0; latency_sum = 0;
        latency_max = 0; reads = 0; last_time = 0; errors = 0; measured_read = 0;
        measured_written = 0; ack_sum = 0; acks = 0; first_time = 0;
        rest = 32'h9E3779B9 + ID * 32'h7F4A7C15;
        for (i = 0; i < BINS; i = i + 1) tally[i] = 0;
        if ($value$plusargs({"port", ID == 0 ? "0" : ID == 1 ? "1" : ID == 2 ? "2" : "3", "=%s"},
                            path)) begin
            file = $fopen(path, "r");
            if (file == 0) begin
                $display("hbm_player: cannot open %0s", path);
                $fatal(1);
            end
            fetch;
        end
    end

    task fetch;
        begin
            got = $fscanf(file, "%h %h %h %h", next_write, next_address, next_length, next_time);
            have = got == 4;
        end
    endtask

    reg finish_read, finish_write, may_offer;
    reg [63:0] waited;
    always @(posedge clk) if (!rst) begin
        rest = rest ^ (rest << 13); rest = rest ^ (rest >> 17); rest = rest ^ (rest << 5);
        finish_read = read_valid && read_ready && read_payload[258];
        finish_write = ack_valid && ack_ready;

        if (request_valid && request_ready) begin
            if (log != 0)
                $fwrite(log, "A %0d %0d %0d %0h %0h\n", ID, now, request_payload[48],
                        request_payload[31:0], request_payload[47:32]);
            if (first_time == 0) first_time <= now;
            request_valid <= 0;
        end
        may_offer = !request_valid || request_ready;
        if (may_offer && have && now >= next_time && flying < outstanding
            && rest[23:16] >= pause[7:0]) begin
            request_valid <= 1;
            request_payload <= {next_write, next_length[15:0], next_address};
            if (next_write) begin
                write_offer[write_tail] <= now + 1;
                write_address[write_tail] <= next_address;
                write_length[write_tail] <= next_length[15:0];
                write_tail <= write_tail + 1;
            end else begin
                read_offer[read_tail] <= now + 1;
                read_tail <= read_tail + 1;
            end
            flying = flying + 1;
            fetch;
        end
        flying = flying - finish_read - finish_write;

        // Write data follow in order.
        if (write_valid && write_ready) begin
            write_valid <= 0;
            beats_written <= beats_written + 1;
            if (measuring) measured_written <= measured_written + 1;
        end
        if ((!write_valid || write_ready) && data_head != write_tail
            && rest[31:24] >= pause[7:0]) begin
            if (write_length[data_head] == 0)
                data_head <= data_head + 1;
            else begin
                write_valid <= 1;
                write_payload <= pattern(write_address[data_head] + data_beat, write_number);
                write_number <= write_number + 1;
                data_beat <= data_beat + 1;
                if (data_beat + 1 == write_length[data_head]) begin
                    data_beat <= 0;
                    data_head <= data_head + 1;
                end
            end
        end

        if (read_valid && read_ready) begin
            beats_read <= beats_read + 1;
            last_time <= now;
            if (measuring) measured_read <= measured_read + 1;
            if (read_payload[257:256] != 0) errors <= errors + 1;
            if (log != 0)
                $fwrite(log, "D %0d %0d %0d %0d %0h\n", ID, now, read_payload[257:256],
                        read_payload[258], read_payload[255:0]);
        end
        if (finish_read) begin
            read_head <= read_head + 1;
            waited = now - read_offer[read_head];
            if (measuring) begin
                reads <= reads + 1;
                latency_sum <= latency_sum + waited;
                if (waited > latency_max) latency_max <= waited;
                tally[waited < BINS ? waited : BINS - 1] <= tally[waited < BINS ? waited : BINS - 1] + 1;
            end
        end
        if (finish_write) begin
            write_head <= write_head + 1;
            last_time <= now;
            if (ack_payload != 0) errors <= errors + 1;
            if (measuring) begin
                acks <= acks + 1;
                ack_sum <= ack_sum + now - write_offer[write_head];
            end
            if (log != 0) $fwrite(log, "K %0d %0d %0d\n", ID, now, ack_payload);
        end

        if (report && result != 0) begin
            $fwrite(result, "port%0d.beats_read %0d\nport%0d.beats_written %0d\n", ID, measured_read,
                    ID, measured_written);
            $fwrite(result, "port%0d.reads %0d\nport%0d.latency_sum %0d\nport%0d.latency_max %0d\n",
                    ID, reads, ID, latency_sum, ID, latency_max);
            $fwrite(result, "port%0d.acks %0d\nport%0d.ack_sum %0d\nport%0d.errors %0d\n",
                    ID, acks, ID, ack_sum, ID, errors);
            $fwrite(result, "port%0d.first %0d\nport%0d.last %0d\n", ID, first_time, ID, last_time);
            for (i = 0; i < BINS; i = i + 1)
                if (tally[i] != 0) $fwrite(result, "port%0d.bin.%0d %0d\n", ID, i, tally[i]);
        end
    end
endmodule
