// Simulation only: plays packets from a file into a link, and records those that come back.
//
// Plusargs: +NAME.load=FILE packets to play, +NAME.dump=FILE where to record, +NAME.live=1 the file
// grows: `posted` says how many of its packets may be read.
//
// Records to play, little endian: bytes (32 bits), packets that must have come back before (32),
// the bytes padded to a multiple of 8. A record without bytes ends the file: `done` rises when so
// many packets have come back. Recorded: bytes (32), packets played before the first word came
// (32), clocks of the first and the last word (64 each), the padded bytes; a record is complete in
// the file when `arrived` counts it.
module packet_mailbox #(
    parameter NAME = "link"
) (
    input  wire        clk,
    input  wire        rst,
    input  wire [31:0] posted,
    output reg  [31:0] played,
    output reg  [31:0] arrived,
    output wire        done,
    output wire        fetch,
    input  wire        out_pause,
    output wire        out_valid,
    input  wire        out_ready,
    output reg  [68:0] out_payload,
    input  wire        in_pause,
    input  wire        in_valid,
    output wire        in_ready,
    input  wire [68:0] in_payload
);
    localparam WORDS = 1024;

    integer load, dump, live, got;
    string path;
    reg loaded, ended;
    reg [31:0] opened, left, after;
    reg [63:0] raw, now;

    // A packet from the tile is kept until its last word, then written at once.
    reg [63:0] buffer [0:WORDS-1];
    reg [31:0] words, begin_played, i;
    reg [63:0] begin_clock;
    reg [191:0] head;
    reg [63:0] word;

    // File order to bits: $fread puts the first byte on top.
    function [63:0] swap(input [63:0] value);
        integer b;
        for (b = 0; b < 8; b = b + 1)
            swap[8*b +: 8] = value[8*(7-b) +: 8];
    endfunction

    // Read the next record's head, when there is one.
    task open_record;
        if (load != 0 && !ended && (live == 0 || opened != posted)) begin
            got = $fread(raw, load);
            if (got != 8) begin
                $display("packet_mailbox %0s: the file ends without a last record", NAME);
                $fatal(1);
            end
            raw = swap(raw);
            left = raw[31:0];
            after = raw[63:32];
            ended = left == 0;
            opened = opened + 1;
        end
    endtask

    initial begin
        load = 0; dump = 0; live = 0; loaded = 0; ended = 0; opened = 0; left = 0; after = 0;
        played = 0; arrived = 0; now = 0; out_payload = 0; words = 0; begin_clock = 0;
        begin_played = 0;
        if (!$value$plusargs({NAME, ".live=%d"}, live)) live = 0;
        if ($value$plusargs({NAME, ".load=%s"}, path)) begin
            load = $fopen(path, "rb");
            if (load == 0) begin
                $display("packet_mailbox %0s: cannot open %0s", NAME, path);
                $fatal(1);
            end
        end
        if ($value$plusargs({NAME, ".dump=%s"}, path)) begin
            dump = $fopen(path, "wb");
            if (dump == 0) begin
                $display("packet_mailbox %0s: cannot write %0s", NAME, path);
                $fatal(1);
            end
        end
    end

    wire go = out_valid && out_ready;
    assign out_valid = loaded && !out_pause;
    assign fetch = left != 0 && arrived >= after && (!loaded || go);
    assign done = ended && arrived >= after && !loaded;

    always @(posedge clk) if (!rst) begin
        now <= now + 1;
        if (go && out_payload[68]) played <= played + 1;
        if (fetch) begin
            got = $fread(raw, load);
            if (got != 8) begin
                $display("packet_mailbox %0s: the file ends inside a packet", NAME);
                $fatal(1);
            end
            out_payload <= {left <= 8, left <= 8 ? left[3:0] : 4'd8, swap(raw)};
            left = left > 8 ? left - 8 : 0;
        end
        loaded <= fetch || (loaded && !go);
        if (left == 0) open_record;
    end

    assign in_ready = !in_pause;

    always @(posedge clk) if (!rst && in_valid && in_ready) begin
        word = in_payload[63:0];
        if (in_payload[68])
            word = word & ~(in_payload[67:64] == 8 ? 64'd0 : ~64'd0 << (8 * in_payload[67:64]));
        if (words < WORDS) buffer[words] = word;
        if (words == 0) begin
            begin_clock = now;
            begin_played = played;
        end
        words = words + 1;
        if (in_payload[68]) begin
            if (dump != 0) begin
                head = {now, begin_clock, begin_played, (words - 1) * 8 + {28'd0, in_payload[67:64]}};
                $fwrite(dump, "%u", head);
                for (i = 0; i < words && i < WORDS; i = i + 1) begin
                    word = buffer[i];
                    $fwrite(dump, "%u", word);
                end
                $fflush(dump);
            end
            words = 0;
            arrived <= arrived + 1;
        end
    end

    final if (dump != 0) $fclose(dump);
endmodule
