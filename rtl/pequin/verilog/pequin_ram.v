// Simple dual-port RAM: one write port, one read port, one clock.
//
// Read: data appear one clock after read_en and are held while read_en is low.
// Collision: a read of the address that is written in the same clock returns the old word in
// simulation; hardware may return anything, so a user avoids or bypasses it.
//
// Simulation only (SYNTHESIS not defined): the memory starts at zero; plusarg +NAME.load=FILE
// fills it before the first clock and +NAME.dump=FILE writes it at the end. Such a file holds
// the words in order of address, each as little-endian bytes, padded with zeros to a multiple of
// four bytes. A file may be shorter than the memory, not longer.
module pequin_ram #(
    parameter WIDTH = 8,
    parameter DEPTH = 2,
    parameter ADDR_WIDTH = 1,
    parameter NAME = "ram"
) (
    input  wire                  clk,
    input  wire                  read_en,
    input  wire [ADDR_WIDTH-1:0] read_addr,
    output reg  [WIDTH-1:0]      read_data,
    input  wire                  write_en,
    input  wire [ADDR_WIDTH-1:0] write_addr,
    input  wire [WIDTH-1:0]      write_data
);
    // Without no_rw_check, Yosys adds registers and multiplexers that give the old word.
    (* ram_style = "block", no_rw_check *)
    reg [WIDTH-1:0] mem [0:DEPTH-1];

    always @(posedge clk) begin
        if (write_en)
            mem[write_addr] <= write_data;
        if (read_en)
            read_data <= mem[read_addr];
    end

`ifndef SYNTHESIS
    localparam FILE_BYTES = (WIDTH + 31) / 32 * 4;

    integer load_file, load_word, load_byte, load_count;
    reg [8*FILE_BYTES-1:0] load_raw, load_data;
    string load_path;

    initial begin
        for (load_word = 0; load_word < DEPTH; load_word = load_word + 1)
            mem[load_word] = {WIDTH{1'b0}};
        if ($value$plusargs({NAME, ".load=%s"}, load_path)) begin
            load_file = $fopen(load_path, "rb");
            if (load_file == 0) begin
                $display("pequin_ram %0s: cannot open %0s", NAME, load_path);
                $fatal(1);
            end
            load_word = 0;
            load_count = $fread(load_raw, load_file);
            while (load_count == FILE_BYTES && load_word < DEPTH) begin
                for (load_byte = 0; load_byte < FILE_BYTES; load_byte = load_byte + 1)
                    load_data[8*load_byte +: 8] = load_raw[8*(FILE_BYTES-1-load_byte) +: 8];
                mem[load_word] = load_data[WIDTH-1:0];
                load_word = load_word + 1;
                load_count = $fread(load_raw, load_file);
            end
            $fclose(load_file);
            if (load_count != 0) begin
                $display("pequin_ram %0s: %0s is longer than %0d words or ends inside a word",
                         NAME, load_path, DEPTH);
                $fatal(1);
            end
        end
    end

    integer dump_file, dump_word;
    reg [8*FILE_BYTES-1:0] dump_data;
    string dump_path;

    final begin
        if ($value$plusargs({NAME, ".dump=%s"}, dump_path)) begin
            dump_file = $fopen(dump_path, "wb");
            dump_data = {(8*FILE_BYTES){1'b0}};
            for (dump_word = 0; dump_word < DEPTH; dump_word = dump_word + 1) begin
                dump_data[WIDTH-1:0] = mem[dump_word];
                $fwrite(dump_file, "%u", dump_data);
            end
            $fclose(dump_file);
        end
    end
`endif
endmodule
