#include "studies/rounds/language.h"

#include "studies/training/gaussian.h"
#include "studies/training/layers.h"
#include <algorithm>
#include <cmath>

#include "dear/schedule/codec/draw.h"

namespace dear::studies::rounds {
namespace {

// Each thing that is drawn has a key of codec::Draw.
enum Key : std::uint64_t { spelling, following, weights, test_text, first_site };

constexpr double kLikesToFollow = 0.5;
constexpr double kPreferred = 10;  // times as frequent where sites are apart

double part_of_one(codec::Draw& draw) { return static_cast<double>(draw.next() >> 11) * 0x1p-53; }

struct Language {
  std::vector<Text> words;
  std::vector<std::vector<std::size_t>> followers;
};

Language draw_language(const LanguageShape& shape, std::uint64_t seed) {
  Language language;
  codec::Draw letters(seed, 0, spelling), likes(seed, 0, following);
  const auto words = static_cast<std::uint64_t>(shape.words);
  for (int word = 0; word < shape.words; ++word) {
    const auto more = static_cast<std::uint64_t>(shape.most_letters - shape.least_letters + 1);
    Text& spelt = language.words.emplace_back(shape.least_letters + letters.below(more));
    for (std::uint8_t& letter : spelt) letter = static_cast<std::uint8_t>(1 + letters.below(kCharacters - 1));
    std::vector<std::size_t>& follow = language.followers.emplace_back();
    for (int one = 0; one < shape.followers; ++one) follow.push_back(likes.below(words));
  }
  return language;
}

// Sums of the words' frequencies at a site.
std::vector<double> sums_at(const LanguageShape& shape, const TextOf& of, int site) {
  std::vector<double> sums;
  double sum = 0;
  for (int word = 0; word < shape.words; ++word) {
    const bool preferred = of.apart && word % of.sites == site;
    sum += (preferred ? kPreferred : 1) / (word + 1);
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace

Text draw_text(const LanguageShape& shape, const TextOf& of, std::size_t characters) {
  const Language language = draw_language(shape, of.seed);
  std::vector<std::vector<double>> sums;
  for (int site = 0; site < of.sites; ++site)
    sums.push_back(sums_at(shape, of, of.site < 0 ? site : of.site));
  codec::Draw draw(of.seed, 0,
                   of.site < 0 ? std::uint64_t{test_text}
                               : std::uint64_t{first_site} + static_cast<std::uint64_t>(of.site));
  Text text;
  std::size_t word = 0;
  constexpr std::size_t kStretch = 20;  // words of one site in a text of all
  for (std::size_t number = 0; text.size() < characters; ++number) {
    const std::vector<double>& frequencies = sums[number / kStretch % sums.size()];
    if (number > 0 && part_of_one(draw) < kLikesToFollow) {
      const std::vector<std::size_t>& follow = language.followers[word];
      word = follow[draw.below(follow.size())];
    } else {
      const double at = part_of_one(draw) * frequencies.back();
      word = static_cast<std::size_t>(std::upper_bound(frequencies.begin(), frequencies.end() - 1, at) -
                                      frequencies.begin());
    }
    text.insert(text.end(), language.words[word].begin(), language.words[word].end());
    text.push_back(0);
  }
  text.resize(characters);
  return text;
}

std::array<Range, 5> CharacterShape::tensors() const {
  const std::int64_t width = std::int64_t{context} * embedding;
  std::array<Range, 5> all;
  std::int64_t end = 0;
  const std::array<std::int64_t, 5> sizes{std::int64_t{kCharacters} * embedding, width * hidden, hidden,
                                          std::int64_t{hidden} * kCharacters, kCharacters};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    all[i] = {end, end + sizes[i]};
    end += sizes[i];
  }
  return all;
}

// Weights keep the variance of what goes through them (He et al. 2015, arXiv 1502.01852).
std::vector<float> CharacterModel::initial_parameters(std::uint64_t seed) const {
  training::Gaussian gaussian(seed, weights);
  std::vector<float> parameters(static_cast<std::size_t>(shape_.parameters()));
  const auto fill = [&](const Range& range, double deviation) {
    for (std::int64_t i = range.begin; i < range.end; ++i)
      parameters[static_cast<std::size_t>(i)] = static_cast<float>(deviation) * gaussian();
  };
  fill(tensors_[0], 1);
  fill(tensors_[1], std::sqrt(2.0 / (shape_.context * shape_.embedding)));
  fill(tensors_[3], std::sqrt(1.0 / shape_.hidden));
  return parameters;
}

double CharacterModel::loss(std::span<const float> parameters, const Text& text,
                            std::span<const std::size_t> places) {
  const auto context = static_cast<std::size_t>(shape_.context);
  const auto embedding = static_cast<std::size_t>(shape_.embedding);
  const std::size_t width = context * embedding, rows = places.size();
  inputs_.resize(rows * width);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t back = 0; back < context; ++back)
      std::copy_n(
          parameters.begin() + static_cast<std::ptrdiff_t>(text[places[row] - context + back] * embedding),
          embedding, inputs_.begin() + static_cast<std::ptrdiff_t>(row * width + back * embedding));
  training::affine(inputs_, rows, training::part(parameters, tensors_[1]),
                   training::part(parameters, tensors_[2]), hidden_);
  training::rectify(hidden_);
  training::affine(hidden_, rows, training::part(parameters, tensors_[3]),
                   training::part(parameters, tensors_[4]), logits_);
  double loss = 0;
  const auto share = 1 / static_cast<float>(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<float> one = std::span(logits_).subspan(row * kCharacters, kCharacters);
    const std::size_t right = text[places[row]];
    const float most = *std::max_element(one.begin(), one.end()), of_right = one[right] - most;
    float sum = 0;
    for (float& value : one) sum += value = std::exp(value - most);
    loss += (std::log(sum) - of_right) / static_cast<double>(rows);
    for (float& value : one) value *= share / sum;  // makes logits their gradient
    one[right] -= share;
  }
  return loss;
}

double CharacterModel::learn(std::span<const float> parameters, const Text& text,
                             std::span<const std::size_t> places, std::span<float> gradient) {
  const double loss_here = loss(parameters, text, places);
  const std::size_t rows = places.size();
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  training::add_gradient(hidden_, logits_, rows, training::at(gradient, tensors_[3]),
                         training::at(gradient, tensors_[4]));
  training::pass_back(logits_, training::part(parameters, tensors_[3]), rows, transposed_, of_hidden_);
  training::rectify_back(hidden_, of_hidden_);
  training::add_gradient(inputs_, of_hidden_, rows, training::at(gradient, tensors_[1]),
                         training::at(gradient, tensors_[2]));
  training::pass_back(of_hidden_, training::part(parameters, tensors_[1]), rows, transposed_, of_inputs_);
  const auto context = static_cast<std::size_t>(shape_.context);
  const auto embedding = static_cast<std::size_t>(shape_.embedding);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t back = 0; back < context; ++back) {
      float* const of_character = gradient.data() + text[places[row] - context + back] * embedding;
      const float* const of_input = of_inputs_.data() + (row * context + back) * embedding;
      for (std::size_t i = 0; i < embedding; ++i) of_character[i] += of_input[i];
    }
  return loss_here;
}

}  // namespace dear::studies::rounds
